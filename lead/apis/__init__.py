"""APIs other than OpenAI's and llama-server's; each has a folder."""
