"""The ``index`` command: files to rows, bad rows reported, duplicates and leaks found, only changes processed."""
