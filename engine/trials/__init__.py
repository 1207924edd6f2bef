"""One demonstration asked alone: reliability of sources, the vote, and a ranker from these answers."""
