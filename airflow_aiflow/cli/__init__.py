"""The command `aiflow`."""
