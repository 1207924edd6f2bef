"""Dialogs over a tab."""
