"""Stalls of every kind, provoked for real: `make recovery-report` plays all, `make test` a slice."""
