"""Curation decided on what is served: prunings proposed from what is known, confirmed with real prompts."""
