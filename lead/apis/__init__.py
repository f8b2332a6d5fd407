"""APIs beside OpenAI's and llama-server's; each has a folder."""
