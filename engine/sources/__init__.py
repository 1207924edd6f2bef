"""Source importance (paper 003): which sources help, which poison, and what to do about it."""
