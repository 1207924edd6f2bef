"""What opens over a tab and goes away again."""
