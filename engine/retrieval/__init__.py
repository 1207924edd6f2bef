"""Retrieval of ranked candidates for a query, without an LLM: encoders, BM25, exact cosine search, diversity."""
