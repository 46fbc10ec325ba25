"""Fourteen faults: what ours does, and what common-ai's durable agent does."""
