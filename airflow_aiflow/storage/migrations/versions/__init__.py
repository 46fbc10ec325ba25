"""The revisions, in their order. There is no way down: a ledger that forgets is no ledger."""
