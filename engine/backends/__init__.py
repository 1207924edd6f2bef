"""What answers behind a prefix of ``--llm``; `register` is the list."""
