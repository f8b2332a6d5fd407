"""Several models: `lead --models-dir` starts a lead for each on demand, and `lead models` lists them."""
