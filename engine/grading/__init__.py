"""Answers: what of a reply is read as the answer, which answers are the same, and how good an answer is."""
