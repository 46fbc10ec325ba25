"""Adapters of the domain's ports: ledgers and artifact stores. Nothing here is imported before it is asked for."""
