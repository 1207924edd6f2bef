"""What others do, to compare with: methods that call the LLM during selection, and a datamodel of the pool."""
