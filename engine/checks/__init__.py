"""Suspicious rows of the pool, found without an LLM, each with its evidence."""
