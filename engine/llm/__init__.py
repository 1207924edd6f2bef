"""The chosen LLM: one interface, its backends, the call cache, budget and concurrency."""
