"""The library for Python and notebooks: `Pool` does what the commands do."""
