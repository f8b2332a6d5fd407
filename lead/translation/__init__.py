"""Translation: provides the lead's vocabulary to backs that have another one."""
