"""Translation: the lead's vocabulary, for a back that has another one."""
