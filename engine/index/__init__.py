"""What ``index`` does: files to rows, bad rows named, duplicates and leaks found, only what changed done again."""
