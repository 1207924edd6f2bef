"""Suspicious rows of the pool: findings without an LLM, and all evidence by row as one probability."""
