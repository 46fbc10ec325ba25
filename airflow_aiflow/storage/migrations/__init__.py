"""Alembic's environment and the revisions of the ledger's schema: each is a file of raw SQL and a stub that runs it."""
