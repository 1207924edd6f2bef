"""Answers: what of a reply is read as the answer, which answers are the same, and how good an answer is."""

SETTINGS = ("metric", "read", "least", "judge_llm", "judge_prompt", "judge_price_in", "judge_price_out")
"""The settings that say so, and the options of the same names."""
