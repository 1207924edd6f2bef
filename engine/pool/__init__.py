"""Demonstrations, queries, prompts and answers."""
