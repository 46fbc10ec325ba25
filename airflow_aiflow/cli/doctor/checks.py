"""
Every check of `aiflow doctor`, in the order of its report. A test holds this table and ``docs/operations/doctor.md``.
"""

from __future__ import annotations

from contextlib import closing

from airflow_aiflow.cli.doctor import airflow_side, artifacts, clocks, ledger, settings, timeouts
from airflow_aiflow.cli.doctor.finding import Check, Finding, ok
from airflow_aiflow.cli.doctor.sources import Sources
from airflow_aiflow.exceptions import AiflowConfigError

#: Things that wait for a person: a look, not a list.
WAITING = 1000


def _ledger_address(sources: Sources) -> Finding:
    from airflow_aiflow.storage.postgres_faults import address

    return ok(f"{address(sources.dsn.get())}")


def _artifacts_address(sources: Sources) -> Finding:
    found = sources.store.get().settings
    return ok(f"{found.address}, bucket {found.bucket}" + (f", prefix {found.prefix}" if found.prefix else ""))


def _payload_keys(sources: Sources) -> Finding:
    from airflow_aiflow.storage.payload_cipher import check_keys, key_id

    keys = sources.payload_keys()
    check_keys(keys)
    return ledger.payload_keys(sources.tables().key_ids(), {key_id(key): 1 for key in keys})


def _in_doubt(sources: Sources) -> Finding:
    from airflow_aiflow.storage.postgres_inbox import PostgresInbox

    sources.tables()
    with closing(PostgresInbox.connect(sources.dsn.get())) as inbox:
        waiting = inbox.waiting(limit=WAITING)
    suspected = sum(1 for one in waiting if one.effect is not None and one.effect.duplicate_suspected)
    return ledger.in_doubt(len(waiting), suspected, more=len(waiting) == WAITING)


def _database_clock(sources: Sources) -> Finding:
    found = sources.clock.get()
    return clocks.compared("the database's", found.ahead, found.within)


def _api_clock(sources: Sources) -> Finding:
    found = airflow_side.clock(sources.answering.get())
    return clocks.compared("the API server's", found.ahead, found.within)


def _store_clock(sources: Sources) -> Finding:
    ahead = sources.report.get().clock_skew
    if ahead is None:
        return ok("the object store does not tell its time")
    return clocks.compared("the object store's", ahead, 1.0, refuses=clocks.S3_REFUSES)


def _options(sources: Sources) -> Finding:
    from airflow_aiflow.config import check_options
    from airflow_aiflow.durable.lease import LeaseRules

    known = None
    try:
        LeaseRules(sources.seconds("aiflow.lease_ttl"), sources.seconds("aiflow.heartbeat_interval"))
    except AiflowConfigError as why:
        known = str(why)
    return settings.options(check_options, known)


UPGRADE = "`aiflow db upgrade` with the owner's connection"

CHECKS: tuple[Check, ...] = (
    Check(
        "ledger.address",
        "whether anything says where the ledger is",
        "set `AIRFLOW_CONN_AIFLOW_LEDGER`, or give `--dsn`",
        _ledger_address,
    ),
    Check(
        "ledger.server",
        "whether it answers, takes writes, is PostgreSQL 14 or newer and encodes in UTF-8",
        "start the server; let the connection lead to the primary",
        lambda s: ledger.server(s.probe.get().where, s.role.get()),
    ),
    Check(
        "ledger.schema",
        "whether the tables are of the revision that this code knows",
        UPGRADE,
        lambda s: ledger.schema(s.revision.get()),
    ),
    Check(
        "ledger.rights",
        "whether the role may read and write every table",
        UPGRADE,
        lambda s: ledger.rights(s.role.get(), s.probe.get().missing_rights()),
    ),
    Check(
        "ledger.owner",
        "whether the role owns nothing and is no superuser",
        "give tasks a role that owns nothing",
        lambda s: ledger.owner(s.role.get()),
    ),
    Check(
        "ledger.isolation",
        "whether the role's default isolation is READ COMMITTED",
        "`ALTER ROLE ... SET default_transaction_isolation = 'read committed'`",
        lambda s: ledger.isolation(s.role.get()),
    ),
    Check(
        "ledger.durability",
        "whether a commit is on disk when it is acknowledged (`synchronous_commit`, `fsync`, `full_page_writes`)",
        "`ALTER ROLE ... SET synchronous_commit = on`",
        lambda s: ledger.durability(s.role.get()),
    ),
    Check(
        "ledger.pooler",
        "whether a pooler stands in between, and whether LISTEN works through it",
        "nothing: both work",
        lambda s: ledger.pooler(s.probe.get().pooling()),
    ),
    Check(
        "ledger.payload_keys",
        "whether the newest stored values can be opened with the keys that are configured here",
        "add the missing key to `[aiflow] payload_keys`, behind the first one",
        _payload_keys,
    ),
    Check(
        "artifacts.address",
        "whether anything says where the artifact store is",
        "set `AIRFLOW_CONN_AIFLOW_ARTIFACTS`",
        _artifacts_address,
    ),
    Check(
        "artifacts.store",
        "whether the bucket is there, and a value that is put comes back as it was (SHA-256)",
        "make the bucket; correct its name, the key or the secret in the connection",
        lambda s: s.kept.get(),
    ),
    Check(
        "artifacts.conditions",
        "how the server takes a conditional put and a wrong checksum; nothing rests on either",
        "let the key sign links (presigned PUT) for this bucket",
        lambda s: artifacts.conditions(s.report.get()),
    ),
    Check(
        "artifacts.rights",
        "whether the key may delete objects and list unfinished uploads",
        "allow both; let a rule of the bucket abort unfinished uploads",
        lambda s: artifacts.rights(s.report.get()),
    ),
    Check(
        "api.address",
        "whether anything says where Airflow's REST API is",
        "set `AIRFLOW_CONN_AIFLOW_API`",
        lambda s: ok(s.api.get().base_url),
    ),
    Check(
        "api.answers",
        "whether it answers, takes the log-in, lists DAGs, and is Airflow 3.3 or newer",
        "correct the log-in in `AIRFLOW_CONN_AIFLOW_API`; give its user the role Op",
        lambda s: airflow_side.answers(s.answering.get()),
    ),
    Check(
        "api.health",
        "whether Airflow's scheduler, DAG processor and triggerer live",
        "start the part again that is named",
        lambda s: airflow_side.health(s.answering.get().request("GET", "/monitor/health")),
    ),
    Check(
        "api.plugin",
        "whether the API server has loaded the plugin",
        "install the package for every part of Airflow, and start them again",
        lambda s: airflow_side.plugin(s.answering.get()),
    ),
    Check(
        "clock.database",
        "how far this machine's clock is from the database's",
        "let both take their time from the same source",
        _database_clock,
    ),
    Check(
        "clock.api",
        "how far this machine's clock is from the API server's",
        "let both take their time from the same source",
        _api_clock,
    ),
    Check(
        "clock.store",
        "how far this machine's clock is from the object store's, which refuses requests from 15 minutes on",
        "let both take their time from the same source",
        _store_clock,
    ),
    Check(
        "recovery.dag",
        "whether the recovery DAG is there, loaded and not paused",
        "copy `dags/aiflow_recovery.py`; `airflow dags unpause aiflow_recovery`",
        lambda s: airflow_side.recovery_dag(s.answering.get(), s.recovery_dag),
    ),
    Check(
        "recovery.runs",
        "whether recovery is at work, or was a few minutes ago",
        "look at the log of its task, and at the scheduler",
        lambda s: airflow_side.recovery_runs(s.answering.get(), s.recovery_dag),
    ),
    Check(
        "settings.lease",
        "whether `lease_ttl` is more than twice `heartbeat_interval`",
        "`AIRFLOW__AIFLOW__LEASE_TTL` = three times the interval",
        lambda s: settings.lease(s.seconds("aiflow.lease_ttl"), s.seconds("aiflow.heartbeat_interval")),
    ),
    Check(
        "settings.options",
        "whether every option of `[aiflow]` can be used",
        "mend the option that is named",
        _options,
    ),
    Check(
        "settings.reschedule_delay",
        "whether a parked task comes back late enough for Airflow to know that it parked",
        "`AIRFLOW__AIFLOW__RESCHEDULE_DELAY=30`",
        lambda s: settings.reschedule_delay(s.seconds("aiflow.reschedule_delay")),
    ),
    Check(
        "settings.seal_key",
        "whether the key of the seals is set and long enough",
        "`AIRFLOW__AIFLOW__SEAL_KEY`, the same everywhere",
        lambda s: settings.seal_key(s.option("aiflow.seal_key")),
    ),
    Check(
        "settings.payload_keys",
        "whether the keys that encrypt payloads are keys",
        "replace the key that is named",
        lambda s: settings.own_payload_keys(s.payload_keys()),
    ),
    Check(
        "airflow.heartbeat_timeout",
        "whether `[scheduler] task_instance_heartbeat_timeout` is longer than the lease",
        "`AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT=300`",
        lambda s: timeouts.heartbeat_timeout(
            s.seconds("scheduler.task_instance_heartbeat_timeout"), s.seconds("aiflow.lease_ttl")
        ),
    ),
    Check(
        "airflow.detection",
        "when Airflow finds a dead task by itself",
        "`AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL=10`",
        lambda s: timeouts.detection(
            s.seconds("scheduler.task_instance_heartbeat_timeout"),
            s.seconds("scheduler.task_instance_heartbeat_timeout_detection_interval"),
            s.seconds("scheduler.orphaned_tasks_check_interval"),
        ),
    ),
    Check(
        "airflow.success_overtime",
        "whether `[core] task_success_overtime` leaves time to note that Airflow heard of a success",
        "`AIRFLOW__CORE__TASK_SUCCESS_OVERTIME=20`",
        lambda s: timeouts.success_overtime(s.seconds("core.task_success_overtime")),
    ),
    Check(
        "airflow.supervisor",
        "how long a task outlives the API server (`[workers] max_failed_heartbeats`, `min_heartbeat_interval`)",
        "`AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS=12`",
        lambda s: timeouts.supervisor(
            s.seconds("workers.max_failed_heartbeats"),
            s.seconds("workers.min_heartbeat_interval"),
            s.seconds("aiflow.lease_ttl"),
        ),
    ),
    Check(
        "airflow.execution_api",
        "whether task processes on this machine would reach the execution API",
        "`AIRFLOW__CORE__EXECUTION_API_SERVER_URL`",
        lambda s: airflow_side.execution_api(s.execution_api()),
    ),
    Check(
        "spool.folder",
        "whether outcomes that can't reach the ledger could be kept on this machine, and read by nobody else",
        "let the workers' user write there; `chmod 700`",
        lambda s: settings.spool_folder(s.spool()),
    ),
    Check(
        "spool.left",
        "whether outcomes wait on this machine that could not reach the ledger",
        "start a durable task on this machine while the ledger answers; see [the spool](spool.md)",
        lambda s: settings.spool(s.spool()),
    ),
    Check(
        "inbox.waiting",
        "how many effects are in doubt, and how many questions wait for a person",
        "`aiflow effects list --in-doubt`; see [answer what a task asks](../how-to/answer-doubts.md)",
        _in_doubt,
    ),
)
