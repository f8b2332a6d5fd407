"""Embeddings, and reranking (how well texts match a question), with dedicated models."""
