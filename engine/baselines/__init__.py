"""What others do, to compare with: BM25+, methods that call the LLM during selection, and a datamodel of the pool."""
