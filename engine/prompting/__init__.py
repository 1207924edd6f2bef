"""Prompts: the templates by which a query and its demonstrations become what an LLM reads."""
