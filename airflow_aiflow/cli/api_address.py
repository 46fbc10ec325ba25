"""
Where Airflow's REST API is: the connection in the environment, else the embedded stack's.

A command that only tells Airflow something works without it, and then says what that costs.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from airflow_aiflow.cli.ledger_address import ENV_FILE, connection_fields

if TYPE_CHECKING:
    from airflow_aiflow.hooks.airflow_api import AirflowApi

VARIABLE = "AIRFLOW_CONN_AIFLOW_API"


def find_api(options: argparse.Namespace) -> AirflowApi | None:
    """
    Find Airflow's REST API.

    :param options: with ``home``.
    :return: ``None``: nothing says where it is.
    :raises AiflowConfigError: if what says so can't be read.
    """
    where, value = VARIABLE, os.environ.get(VARIABLE)
    if not value:
        from airflow_aiflow.local.env_file import read_env

        path = options.home / ENV_FILE
        where, value = f"{VARIABLE} in {path}", read_env(path).get(VARIABLE)
    if not value:
        return None
    from airflow_aiflow.hooks.airflow_api import api_of

    return api_of(where, **connection_fields(value, where))
