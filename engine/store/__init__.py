"""The workspace on disk: one DuckDB file, trained artefacts beside it, decisions with undo."""
