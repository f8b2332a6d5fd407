"""Vectors of texts (embeddings) and how well texts go together (rerank), by a model made for it."""
