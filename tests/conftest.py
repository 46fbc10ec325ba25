"""Fixtures for every test: the shared real servers, and an Airflow home that is nobody's."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

# Before anything imports Airflow, which makes its home where the variable says, or in the user's own.
_home = tempfile.mkdtemp(prefix="aiflow-airflow-home-")
atexit.register(shutil.rmtree, _home, ignore_errors=True)
os.environ["AIRFLOW_HOME"] = _home
for _name in [name for name in os.environ if name.startswith("AIRFLOW__")]:
    del os.environ[_name]

pytest_plugins = ("tests.stack",)
