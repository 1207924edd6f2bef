"""Dynamic uncertainty ranking and the ledger of helpful and misleading demonstrations (paper 000)."""
