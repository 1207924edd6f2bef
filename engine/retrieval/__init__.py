"""From a query to ranked candidates, without an LLM: encoders, BM25, exact cosine search, diversity."""
