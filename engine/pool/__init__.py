"""What a demonstration, a query, a prompt and an answer are."""
