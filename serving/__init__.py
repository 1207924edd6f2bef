"""What listens at a port: selection over HTTP for serving processes, and ``review`` for the owner's browser."""
