"""
Which schema this code knows, and what it says where it finds another.

A revision is a number with leading zeros, so that older and newer can be told apart without Alembic.
"""

from __future__ import annotations

from airflow_aiflow.exceptions import AiflowConfigError, LedgerSchemaError

#: The revision that the statements in ``sql/`` are written for: the head of ``migrations/``, which a test compares.
EXPECTED = "0012"

#: The schema that holds every table of the ledger, and the table of its revision there.
SCHEMA = "aiflow"
VERSION_TABLE = "schema_version"

UPGRADE = "run `aiflow db upgrade` with the database owner's connection"


def check_version(found: str | None) -> None:
    """
    Compare a ledger's revision with the code's.

    :param found: the ledger's; ``None``: there is no schema.
    :raises LedgerSchemaError: if they differ; the message says which is older.
    """
    if found is None:
        raise LedgerSchemaError(f"the ledger's database has no schema '{SCHEMA}' with tables of ours: {UPGRADE}")
    if found < EXPECTED:
        raise LedgerSchemaError(f"the ledger's schema is at revision {found}, this code needs {EXPECTED}: {UPGRADE}")
    if found > EXPECTED:
        raise LedgerSchemaError(
            f"the ledger's schema is at revision {found}, newer than this code's {EXPECTED}: "
            "install the release of airflow-aiflow that upgraded it, here too"
        )


def check_session(isolation: str, synchronous_commit: str, encoding: str) -> None:
    """
    Refuse settings under which the statements would not keep their promises.

    :param isolation: the role's ``default_transaction_isolation``.
    :param synchronous_commit: the role's.
    :param encoding: the database's.
    :raises AiflowConfigError: if one of them is wrong; the message names it and the way out.
    """
    if isolation != "read committed":
        raise AiflowConfigError(
            f"the ledger's role has default_transaction_isolation = '{isolation}': the statements wait for each "
            "other's rows and need 'read committed'. "
            "Run ALTER ROLE ... SET default_transaction_isolation = 'read committed'"
        )
    if synchronous_commit == "off":
        raise AiflowConfigError(
            "the ledger's role has synchronous_commit = off: a crash of the server would lose intents of calls "
            "that were made. Run ALTER ROLE ... SET synchronous_commit = on"
        )
    if encoding != "UTF8":
        raise AiflowConfigError(f"the ledger's database has the encoding {encoding}: create it with ENCODING 'UTF8'")
