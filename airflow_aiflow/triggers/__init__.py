"""Triggers: thin; what blocks runs in a thread."""
