"""The areas of the long fault suite; see ``benchmarks/faults.py``."""
