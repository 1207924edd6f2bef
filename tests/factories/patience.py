"""How long a test waits for what must come."""

PATIENCE = 900.0
"""Seconds after which a test that hangs is given up; no test measures a time by it, on however busy a machine."""
