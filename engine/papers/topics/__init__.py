"""Topics: what a query needs, what demonstrations cover and what the LLM does not know (paper 004)."""
