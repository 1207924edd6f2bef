"""Widgets the tabs share."""
