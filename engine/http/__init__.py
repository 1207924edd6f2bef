"""Servers behind an OpenAI-compatible API, for LLMs and encoders alike: how they are reached, and what they refuse."""
