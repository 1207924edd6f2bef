"""The four papers, a room each; `register` is what they add to the core."""
