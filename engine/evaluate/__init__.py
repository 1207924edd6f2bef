"""Selection methods compared on one table."""
