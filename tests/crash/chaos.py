"""
A random campaign: whatever can be killed, stopped, restarted or cut is, at random moments.

    make chaos N=500                 so many executions, some at once
    make chaos N=50 SEED=7           a campaign again (the moments are the machine's own)
    make chaos ARGS=--json           one JSON object on the last line

Each execution has two steps, two model calls and two things that it does outside. Its first attempts are killed or
stopped for longer than the lease, beside a next one; meanwhile PostgreSQL is restarted, softly and hard, the S3 server
is away for some seconds, and a share of PostgreSQL's answers is lost. Judged by counters outside: nothing is applied
twice, nothing is missing, and every execution comes to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.exceptions import LedgerUnavailableError
from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.requests import EffectContext
from airflow_aiflow.storage.migrate import upgrade
from tests.crash import child, kinds
from tests.crash.cutting_proxy import CuttingProxy
from tests.crash.forks import Ended, Forks
from tests.crash.life import ASKS, CLOCK, DONE, DOUBT, PARKED, Life, Process

#: The lease is short, so that a stop outlasts it within seconds.
LEASE = LeaseRules(ttl=2.0, interval=0.4)

#: Seconds of an effect's timeout: what a lapsed lease is waited for beyond its end.
EFFECT_TIMEOUT = 2.0

#: Attempts that may be hit; those after them are left alone, so that an execution ends.
HIT_ATTEMPTS = 4

#: Attempts after which an execution counts as stuck.
MOST_ATTEMPTS = 30

#: Share of PostgreSQL's answers that are lost with their connection: about one attempt in four sees one.
CUT_SHARE = 0.01

#: Seconds between two faults of the servers, and for how long the S3 server is away: longer than its client is patient.
SERVER_FAULT_EVERY = (4.0, 9.0)
S3_AWAY = (1.0, 4.0)

#: The latest moment of an attempt, in seconds from its start, at which it is hit: it takes about a third of that.
LATEST_HIT = 0.7

TWO = ("one", "two")


@dataclass(frozen=True)
class Plan:
    """
    Say what an execution is.

    :param number: which one.
    :param seed: of all its chances.
    :param kind: of ``kinds.UNITS``: how what it does outside gets out of doubt.
    :param far: whether its attempts look as if they ran on other machines.
    """

    number: int
    seed: int
    kind: str
    far: bool


def plans(count: int, seed: int) -> list[Plan]:
    """
    Choose the executions.

    Nobody can vouch for an opaque target whose caller is frozen on another machine: there the target dedups.
    """
    chance = random.Random(seed)
    made = []
    for number in range(count):
        far = chance.random() < 0.2
        kind = "retry" if far else chance.choice(("hold", "ask", "retry", "reconcile"))
        made.append(Plan(number, chance.randrange(1 << 30), kind, far))
    return made


def take_time(longest: float = 0.03) -> None:
    """Be a call that takes a moment, in which it may be hit."""
    CLOCK.wait(random.random() * longest)


def send(ctx: EffectContext, key: str) -> str:
    """Send outside: it is applied some way into the call."""
    take_time()
    child.seen(f"applied-{key}", ctx.idempotency_key)
    take_time()
    return kinds.sent_to(key)


def compute(key: str) -> str:
    """Compute a large value."""
    take_time()
    child.seen("computed", key)
    return key * kinds.LARGE


def look(intent: Any) -> Any:
    """Ask the target."""
    take_time()
    from airflow_aiflow.durable.reconcile import DidNotHappen, Happened

    key = intent.request["key"]
    if intent.idempotency_key in child.outside_lines(f"applied-{key}"):
        return Happened(kinds.sent_to(key))
    return DidNotHappen()


OPTIONS: dict[str, dict[str, Any]] = {
    "hold": {"on_in_doubt": "hold"},
    "ask": {"on_in_doubt": "ask"},
    "retry": {"on_in_doubt": "retry"},
    "reconcile": {"on_in_doubt": "hold", "reconcile": look},
}


def body_of(plan: Plan) -> Callable[[Flow], list[Any]]:
    """
    Give an execution's body.

    :param plan: which one.
    """

    def body(flow: Flow) -> list[Any]:
        random.seed(os.getpid())
        given: list[Any] = []
        for key in TWO:
            given.append(len(flow.step(f"compute {key}", compute, key)))
            given.append(flow.llm(f"question {key}", f"{plan.number} {key}?").strip("."))
            options = OPTIONS[plan.kind] | {"timeout": EFFECT_TIMEOUT}
            sent = flow.effect("send", send, key, key=f"{plan.number}/{key}", **options)
            given.append(sent and sent.strip("."))
        return given

    return body


class ChaosLife(Life):
    """Be an execution that is hit."""

    def sent(self, key: str) -> int:
        """Count what the target applied of one key."""
        lines = self.outside(f"applied-{key}")
        return len(set(lines)) if self.kind == "retry" else len(lines)

    def say_what_happened(self) -> None:
        """Answer, as a truthful person, whatever of this execution is in doubt."""
        with suppress(LedgerUnavailableError), self.inbox() as inbox:
            for entry in inbox.waiting():
                if entry.effect is not None and entry.effect.execution == self.execution:
                    key = entry.effect.effect.key.split("/")[1]
                    inbox.resolve(entry.number, "happened" if self.sent(key) else "did_not_happen", by="ann", note="-")


def live(plan: Plan, life: ChaosLife) -> dict[str, Any]:
    """
    Let an execution live until it has ended.

    :param plan: which one.
    :param life: its life.
    :return: what was seen of it.
    """
    chance = random.Random(plan.seed)
    hits: Counter[str] = Counter()
    code: int | None = None
    attempt = 0
    for attempt in range(MOST_ATTEMPTS):
        if attempt:
            come_back(life, code, chance)
        process = life.start()
        if attempt < HIT_ATTEMPTS:
            hits[hit(life, process, chance)] += 1
        code = process.wait()
        if code == DONE:
            break
    return {
        "done": code == DONE,
        "attempts": attempt + 1,
        "hits": hits,
        "applied": [life.sent(key) for key in TWO],
        "billed": len(life.outside("billed")),
        "results": len(set(life.outside("results"))),
        "spooled": len(list((life.folder / "spool").glob("*.spool"))),
    }


def come_back(life: ChaosLife, code: int | None, chance: random.Random) -> None:
    """Make the next attempt as Airflow and people do after such an end."""
    if code in (ASKS, DOUBT):
        life.say_what_happened()
    if code in (ASKS, PARKED):
        return  # the same attempt comes back
    ways = [life.retried, life.retried, life.cleared, life.cleared_while_running, life.made_again]
    (life.cleared if code == DOUBT else chance.choice(ways))()


def hit(life: ChaosLife, process: Process, chance: random.Random) -> str:
    """Do something to an attempt at a random moment."""
    moment = chance.random() * LATEST_HIT
    what = chance.choices(("killed", "stopped", "joined", "spared"), (5, 2, 2, 1))[0]
    if what == "spared" or process_ended(process, moment):
        return "spared"
    if what == "killed":
        process.kill()
        return what
    # The next try starts beside it: while it is frozen for longer than its lease, or while it is at work.
    if what == "stopped":
        os.kill(process.pid, signal.SIGSTOP)
    life.retried()
    beside = life.start()
    if what == "stopped":
        process_ended(beside, LEASE.ttl * 1.5)
        process.go_on()
    process_ended(beside, chance.random() * LATEST_HIT)
    beside.kill()
    return what


def process_ended(process: Process, seconds: float) -> bool:
    """Give it so much time; say whether it has ended."""
    return CLOCK.wait(seconds, until=process.poll)


class Servers:
    """Restart PostgreSQL and take the S3 server away, now and then, while executions live."""

    def __init__(self, server: PostgresServer, objects: ObjectStoreServer, seed: int) -> None:
        self._server = server
        self._objects = objects
        self._chance = random.Random(seed)
        self._next = time.monotonic() + self._chance.uniform(1.0, 3.0)
        self._back_at: float | None = None
        self.faults: Counter[str] = Counter()

    def disturb(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if self._back_at is not None and now >= self._back_at:
            self._objects.start()
            self._back_at = None
        if now < self._next:
            return
        what = self._chance.choice(("restarted", "crashed", "s3 away"))
        if what == "s3 away" and self._back_at is None:
            self._objects.stop()
            self._back_at = now + self._chance.uniform(*S3_AWAY)
        elif what != "s3 away":
            if what == "crashed":
                pid = int((self._server.data / "postmaster.pid").read_text().splitlines()[0])
                os.kill(pid, signal.SIGQUIT)
            self._server.stop()
            self._server.start()
        self.faults[what] += 1
        self._next = time.monotonic() + self._chance.uniform(*SERVER_FAULT_EVERY)

    def settle(self) -> None:
        """Bring back what is away."""
        if self._back_at is not None:
            self._objects.start()


def campaign(count: int, seed: int, folder: Path) -> tuple[list[Ended[Plan]], Counter[str]]:
    """
    Run a campaign on servers of its own.

    :param count: of executions.
    :param seed: of all chances.
    :param folder: for everything that they leave.
    :return: the ends, and what happened to the servers.
    """
    with PostgresServer(folder / "pg") as server, ObjectStoreServer(folder / "s3") as objects:
        direct = server.fresh_database()
        upgrade(direct)
        store = {
            "endpoint": objects.endpoint,
            "access_key": objects.access_key,
            "secret_key": objects.secret_key,
            "bucket": objects.bucket(),
            "secure": False,
        }
        servers = Servers(server, objects, seed)
        with CuttingProxy(server.port, CUT_SHARE, seed) as proxy:
            info = psycopg.conninfo.conninfo_to_dict(direct) | {"port": str(proxy.port)}
            dsn = psycopg.conninfo.make_conninfo("", **info)

            def work(plan: Plan, own: Path) -> dict[str, Any]:
                life = ChaosLife(own, dsn, store, plan.kind, own.name, body=body_of(plan), lease=LEASE, far=plan.far)
                return live(plan, life)

            try:
                ended = Forks(work, folder / "lives", meanwhile=servers.disturb).run(plans(count, seed))
            finally:
                servers.settle()
    return ended, servers.faults


def judge(ended: list[Ended[Plan]]) -> dict[str, Any]:
    """
    Count over the outside counters.

    :param ended: all executions.
    """
    seen = [each for each in ended if isinstance(each.value, dict)]
    hits: Counter[str] = Counter()
    for each in seen:
        hits.update(each.value["hits"])
    return {
        "executions": len(ended),
        "duplicated": [shown(each) for each in seen if any(times > 1 for times in each.value["applied"])],
        "lost": [shown(each) for each in seen if each.value["done"] and 0 in each.value["applied"]],
        "stuck": [shown(each) for each in ended if each not in seen or not each.value["done"]],
        "differing results": [shown(each) for each in seen if each.value["results"] > 1 and each.job.kind == "retry"],
        "effects": sum(sum(each.value["applied"]) for each in seen),
        "attempts": sum(each.value["attempts"] for each in seen),
        "calls billed": sum(each.value["billed"] for each in seen),
        "calls needed": 2 * len(ended),
        "hits": dict(hits),
    }


def shown(each: Ended[Plan]) -> str:
    """Say of one execution what was seen."""
    return f"#{each.job.number} {each.job.kind}{' far' if each.job.far else ''} {each.folder}: {each.value}"


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(prog="make chaos", description="Run a random campaign.")
    parser.add_argument("--number", type=int, default=100, help="executions (default 100)")
    parser.add_argument("--seed", type=int, default=None, help="of all chances")
    parser.add_argument("--keep", action="store_true", help="keep what they left")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    print(f"seed {seed}")
    folder = Path(tempfile.mkdtemp(prefix="aiflow-chaos-"))
    began = time.monotonic()
    wrong = True
    try:
        ended, faults = campaign(arguments.number, seed, folder)
        found = judge(ended) | {"servers": dict(faults), "seconds": round(time.monotonic() - began), "seed": seed}
        wrong = any(found[name] for name in ("duplicated", "lost", "stuck", "differing results"))
    finally:
        if not (arguments.keep or wrong):
            shutil.rmtree(folder, ignore_errors=True)
    for name, value in found.items():
        print(f"{name:<20}{value if not isinstance(value, list) else len(value)}")
        for line in value if isinstance(value, list) else ():
            print(f"    {line}")
    if arguments.json:
        print(json.dumps(found))
    return 1 if wrong or not found["executions"] else 0


if __name__ == "__main__":
    sys.exit(main())
