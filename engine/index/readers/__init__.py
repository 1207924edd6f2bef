"""Records of a file, each with the line it starts on.

An error in one record is yielded as `BadRecord` in its place and reading continues; an error of the whole file
(missing, a directory or a device, empty, truncated, wrong format) raises `UsageError`. Text files are decoded row by
row.
"""
