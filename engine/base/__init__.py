"""What everything else stands on: errors, files, progress, packages, memory, arrays. Nothing here knows the pool."""
