"""Translation in a back whose vocabulary differs from the lead's: gets the lead's vocabulary."""
