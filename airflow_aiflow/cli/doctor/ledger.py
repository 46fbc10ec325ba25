"""The ledger: who we are there, what we may, and whether what the statements rely on holds."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_aiflow.cli.doctor.finding import Finding, UnreadError, error, ok, warning
from airflow_aiflow.storage.ledger_probe import Pooling, RoleFacts
from airflow_aiflow.storage.migrate import OLDEST_SERVER
from airflow_aiflow.storage.schema import EXPECTED, UPGRADE

#: Missing rights of one finding: the fix is one command, however many there are.
SHOWN = 5


def server(where: str, role: RoleFacts) -> Finding:
    """
    Look at the server itself.

    :param where: its address, without a password.
    :param role: who we are there.
    """
    found = f"{where} answers, PostgreSQL {role.version // 10_000}, as role {role.role}"
    if role.version < OLDEST_SERVER:
        return error(found, "the statements were never tried there", "use PostgreSQL 14 or newer")
    if role.replica:
        return error(
            f"{where} is a replica",
            "it takes no writes: no task starts",
            "let the connection lead to the primary, or add target_session_attrs=read-write to its extra",
        )
    if role.encoding != "UTF8":
        return error(
            f"{where} has the encoding {role.encoding}",
            "names and messages that it can't hold are refused",
            "create the database with ENCODING 'UTF8' and run `aiflow db upgrade`",
        )
    return ok(found)


def schema(revision: str | None) -> Finding:
    """
    Compare the schema with the code.

    :param revision: the ledger's; ``None``: there is none.
    """
    if revision is None:
        return error("the database has no tables of ours", "no durable task starts", UPGRADE)
    if revision < EXPECTED:
        return error(f"the schema is at revision {revision}, this code needs {EXPECTED}", "no task starts", UPGRADE)
    if revision > EXPECTED:
        return error(
            f"the schema is at revision {revision}, newer than this code's {EXPECTED}",
            "no task with this code starts",
            "install the release of airflow-aiflow that upgraded it, here too",
        )
    return ok(f"the schema is at revision {revision}")


def rights(role: RoleFacts, missing: Mapping[str, list[str]]) -> Finding:
    """
    Look for rights that the work needs.

    :param role: who we are.
    :param missing: by table, view, sequence or function.
    """
    if not role.there:
        raise UnreadError("not checked: see ledger.schema")
    if not missing:
        return ok(f"role {role.role} may read and write every table")
    named = "; ".join(f"{', '.join(what)} on {of_what}" for of_what, what in list(missing.items())[:SHOWN])
    more = f"; and on {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    return error(
        f"role {role.role} lacks {named}{more}",
        "tasks end with an error where they meet it",
        f"{UPGRADE}: it grants the role 'aiflow' what it needs. For another role: GRANT USAGE ON SCHEMA aiflow TO "
        f'"{role.role}"; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA aiflow TO "{role.role}"; '
        f'GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA aiflow TO "{role.role}"',
    )


def owner(role: RoleFacts) -> Finding:
    """
    Look for rights that the work does not need.

    :param role: who we are.
    """
    if not role.superuser and not role.owner:
        return ok(f"role {role.role} can change rows only, no table")
    what = "is a superuser" if role.superuser else "can change or drop the ledger's tables"
    return warning(
        f"role {role.role} {what}",
        "whoever gets hold of a task's connection can change what was recorded, and take the checks away",
        "give tasks a role that owns nothing: CREATE ROLE aiflow LOGIN PASSWORD '...', then `aiflow db upgrade` with "
        "the owner's connection, which grants it the rows",
    )


def isolation(role: RoleFacts) -> Finding:
    """
    Look at the role's default isolation.

    :param role: who we are.
    """
    if role.isolation == "read committed":
        return ok("default_transaction_isolation is 'read committed'")
    return error(
        f"default_transaction_isolation is '{role.isolation}'",
        "the statements wait for each other's rows and must then see them: a take-over could be missed",
        f"ALTER ROLE \"{role.role}\" SET default_transaction_isolation = 'read committed'",
    )


def durability(role: RoleFacts) -> Finding:
    """
    Look at whether a commit is on disk when it is acknowledged.

    :param role: who we are.
    """
    settings = {"fsync": role.fsync, "full_page_writes": role.full_page_writes}
    off = [f"{name} = off" for name, value in settings.items() if value == "off"]
    if role.synchronous_commit == "off":
        off.append("synchronous_commit = off")
    if off:
        return error(
            ", ".join(off),
            "a crash of the server loses intents of calls that were made: an effect could happen twice",
            f'ALTER ROLE "{role.role}" SET synchronous_commit = on; fsync and full_page_writes = on in postgresql.conf',
        )
    if role.synchronous_commit in ("local", "remote_write"):
        return warning(
            f"synchronous_commit = {role.synchronous_commit}",
            "a fail-over may lose commits that were acknowledged",
            f'ALTER ROLE "{role.role}" SET synchronous_commit = on',
        )
    return ok(f"synchronous_commit = {role.synchronous_commit}, fsync = on")


def pooler(pooling: Pooling) -> Finding:
    """
    Say what stands between us and the server.

    :param pooling: as found.
    """
    return {
        "direct": ok("no pooler in between: statements are prepared"),
        "session": ok("a pooler by session: LISTEN works; statements are not prepared"),
        "transaction": ok(
            "a pooler by transaction: LISTEN is dead there, so waits poll; statements are not prepared. Set the role's "
            "options by ALTER ROLE, and run `aiflow db upgrade` past it"
        ),
    }[pooling]


def payload_keys(found: Mapping[str, int], configured: Mapping[str, int]) -> Finding:
    """
    Look for stored values that nobody here can open.

    :param found: how many of the newest values each key encrypts.
    :param configured: the keys of this deployment, by id.
    """
    missing = {key: count for key, count in found.items() if key not in configured}
    if missing:
        named = ", ".join(f"{key} ({count} of the newest values)" for key, count in missing.items())
        return error(
            f"values are encrypted with keys that are not configured here: {named}",
            "tasks that replay them fail with PayloadDecodeError; nothing is lost",
            "add the missing key to [aiflow] payload_keys, behind the first one",
        )
    total = sum(found.values())
    return ok(f"{total} of the newest values are encrypted, all can be opened" if total else "no value is encrypted")


def in_doubt(waiting: int, suspected: int, *, more: bool) -> Finding:
    """
    Count what waits for a person.

    :param waiting: effects in doubt and questions.
    :param suspected: effects that may have happened twice among them.
    :param more: whether the list goes on.
    """
    if not waiting:
        return ok("nothing waits for a person")
    twice = f", {suspected} of them may have happened twice" if suspected else ""
    return warning(
        f"{waiting}{' or more' if more else ''} doubts and questions wait for a person{twice}",
        "their tasks wait, or have failed and stay so",
        "aiflow effects list --in-doubt; then aiflow effects resolve NUMBER --happened, or --did-not-happen",
    )
