"""Tests, by layer: the folders run in the order that pyproject.toml gives."""
