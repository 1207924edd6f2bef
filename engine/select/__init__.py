"""The common interface of all selection methods: (workspace, query, method, k) to demonstrations with scores."""
