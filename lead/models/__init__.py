"""Several models behind one address: `lead --models-dir`, and `lead models`."""
