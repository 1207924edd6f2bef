"""The report: what the pool was and is, what was measured, decided and paid, gathered from the workspace."""
