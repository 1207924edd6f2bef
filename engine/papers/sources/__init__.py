"""Source importance (paper 003): which sources help, which hurt, and what to do about it."""
