"""``openai:MODEL``: any server that speaks OpenAI's API."""
