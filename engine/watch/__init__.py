"""Monitoring: queries of production against the pool as it is. See docs/how-to/watch.md."""
