"""Comparison of selection methods."""
