"""Prompts of promptfoo, LangChain and DSPy: their files, and the languages in which their texts are written."""
