"""One door to every selection method: (workspace, query, method, k) to demonstrations with their reasons."""
