"""Export of the curated corpus in common formats."""
