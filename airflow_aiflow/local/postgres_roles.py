"""The roles and databases of the embedded PostgreSQL, made again harmlessly at each start.

``airflow`` owns Airflow's metadata database. The ledger's database belongs to ``aiflow_owner``, who migrates it; the
role ``aiflow`` that tasks use may read and write rows and nothing else, and has ``synchronous_commit = on`` by ALTER
ROLE, so that no session setting and no pooler can weaken the promise that a record is on disk before it is used.
"""

from __future__ import annotations

import psycopg
from psycopg import sql

SUPERUSER = "postgres"
AIRFLOW = "airflow"
AIFLOW = "aiflow"
AIFLOW_OWNER = "aiflow_owner"
ROLES = (AIRFLOW, AIFLOW, AIFLOW_OWNER)
#: Each database and its owner.
DATABASES = {AIRFLOW: AIRFLOW, AIFLOW: AIFLOW_OWNER}

#: What the ledger's owner creates later, the tasks' role may use: rows only, no DDL.
LEDGER_GRANTS = (
    "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} GRANT USAGE ON SCHEMAS TO {user}",
    "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {user}",
    "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} GRANT USAGE, SELECT ON SEQUENCES TO {user}",
    "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} GRANT EXECUTE ON FUNCTIONS TO {user}",
)


def ensure_roles(connection: psycopg.Connection[tuple[object, ...]], passwords: dict[str, str]) -> None:
    """Create the roles that are missing and set every password.

    :param connection: superuser's connection, in autocommit.
    :param passwords: password by role.
    """
    rows = connection.execute("SELECT rolname FROM pg_roles").fetchall()
    existing = {str(row[0]) for row in rows}
    for role in ROLES:
        verb = sql.SQL("ALTER" if role in existing else "CREATE")
        connection.execute(
            sql.SQL("{} ROLE {} LOGIN PASSWORD {}").format(verb, sql.Identifier(role), sql.Literal(passwords[role]))
        )
    connection.execute(sql.SQL("ALTER ROLE {} SET synchronous_commit = on").format(sql.Identifier(AIFLOW)))


def ensure_database(connection: psycopg.Connection[tuple[object, ...]], name: str, owner: str) -> None:
    """Create a database that is missing and close it to everyone but its roles.

    :param connection: superuser's connection, in autocommit.
    :param name: name of the database.
    :param owner: role that owns it.
    """
    database = sql.Identifier(name)
    if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is None:
        connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, sql.Identifier(owner)))
    connection.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(database))
    if owner == AIFLOW_OWNER:
        connection.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, sql.Identifier(AIFLOW)))


def grant_ledger_rows(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Let the tasks' role use what the ledger's owner will create in this database.

    :param connection: superuser's connection *to the ledger's database*, in autocommit.
    """
    names = {"owner": sql.Identifier(AIFLOW_OWNER), "user": sql.Identifier(AIFLOW)}
    for statement in LEDGER_GRANTS:
        connection.execute(sql.SQL(statement).format(**names))
