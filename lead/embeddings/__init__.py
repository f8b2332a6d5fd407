"""Embeddings of texts, and reranking (how well texts match a question), with dedicated models."""
