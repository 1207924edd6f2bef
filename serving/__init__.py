"""Selection over HTTP for serving processes; its rules for hosts and logs also hold for ``review --serve``."""
