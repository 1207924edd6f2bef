"""The report for colleagues: its content, and how HTML and Markdown show it."""
