"""The curated corpus in the formats people load."""
