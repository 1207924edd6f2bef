"""The workspace on disk: a DuckDB file, trained artefacts, decisions with undo."""
