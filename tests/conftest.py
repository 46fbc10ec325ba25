"""Fixtures for every test: the shared real servers."""

from __future__ import annotations

pytest_plugins = ("tests.stack",)
