"""What is wrong with the pool before any LLM is asked, each row with its evidence."""
