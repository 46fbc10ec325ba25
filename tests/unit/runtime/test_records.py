"""What is recorded when the ledger takes it late, not at all, or not alone; and the spool."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_aiflow.durable.payload import decode
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import FlowOptionError, LedgerError, LedgerUnavailableError
from airflow_aiflow.runtime.current import current_flow
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.spool import Spool
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.testing import DurableTask, ManualClock, ScriptedModels, TestingHost, flow
from tests.unit.runtime.shaky_ledger import ShakyLedger

RAN: list[object] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


def work(n: object) -> object:
    RAN.append(n)
    return n


class World:
    """One task over a ledger that fails, with a spool."""

    def __init__(self, folder: Path, **settings: float) -> None:
        self.clock = ManualClock()
        self.ledger = ShakyLedger(self.clock)
        self.settings = FlowSettings(spool_dir=folder / "spool", **settings)  # type: ignore[arg-type]
        self.task = DurableTask(ledger=self.ledger, clock=self.clock, settings=self.settings)
        self.spool = Spool(folder / "spool")


def events(ledger: MemoryLedger, task: DurableTask) -> list[tuple[str, dict[str, object]]]:
    return [(event.kind, decode(event.data)) for event in ledger.events(task.execution)]


@pytest.mark.parametrize("lost", [True, False])
def test_events_have_no_holes_and_none_is_dropped_when_a_commit_is_not_acknowledged(tmp_path: Path, lost: bool) -> None:
    world = World(tmp_path, ledger_patience=0.0)

    def body(f: Flow) -> None:
        f.emit("one")
        world.ledger.arm(lost=1) if lost else world.ledger.arm(down=(1, 1))
        with pytest.raises(LedgerUnavailableError):
            f.emit("two")
        f.emit("three")

    world.task.run(body)
    assert [kind for kind, _ in events(world.ledger, world.task)] == ["attempt", "one", "two", "three"]


BARRIER = threading.Barrier(8)


def both(n: int) -> object:
    BARRIER.wait(30)
    return current_flow().step("bad" if n == 0 else "good", work, n)


class Choosy(MemoryLedger):
    """A ledger that refuses a row of a given name."""

    def record(self, lease, generation, batch):  # type: ignore[no-untyped-def]
        """Refuse."""
        if any(step.name == "bad" for step in batch.steps):
            raise LedgerError("refused a row")
        return super().record(lease, generation, batch)


def test_a_row_that_the_ledger_refuses_costs_nobody_elses(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = FlowSettings(spool_dir=tmp_path / "spool")
    task = DurableTask(ledger=Choosy(clock), clock=clock, settings=settings)

    with pytest.raises(LedgerError, match="refused a row"):
        task.run(lambda f: f.map("m", both, range(8), max_workers=8))
    assert len(Spool(tmp_path / "spool").files()) == 1

    def again(f: Flow) -> list[object]:
        return [f.step("inner", str, n) for n in range(2)]

    # The file that the ledger refuses stays, and keeps nobody from starting.
    assert task.run(again) == ["0", "1"]
    assert len(Spool(tmp_path / "spool").files()) == 1
    assert any("is left alone" in line for line in task.host.warnings)


def spool_one(world: World, name: str = "s") -> Path:
    """Have one result spooled."""

    def body(f: Flow) -> None:
        world.ledger.arm(down=(1, 10**9))
        f.step(name, work, 1)

    with pytest.raises(LedgerUnavailableError) as caught:
        world.task.run(body)
    assert any("in the spool" in note for note in caught.value.__notes__)
    world.ledger.arm()
    [path] = world.spool.files()
    return path


def test_a_spooled_result_is_taken_in(tmp_path: Path) -> None:
    world = World(tmp_path, ledger_patience=1.0)
    spool_one(world)
    assert world.task.run(lambda f: f.step("s", work, 1)) == 1
    assert RAN == [1]
    assert world.spool.files() == []


def damaged(raw: bytes) -> bytes:
    return raw[:-1] + bytes([raw[-1] ^ 1])


@pytest.mark.parametrize(
    "spoil", [damaged, lambda raw: raw[:40], lambda raw: raw[:3], lambda raw: b"", lambda raw: raw + b"x"]
)
def test_a_damaged_or_half_written_file_stays_and_is_named(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    world = World(tmp_path, ledger_patience=1.0)
    path = spool_one(world)
    path.write_bytes(spoil(path.read_bytes()))
    (path.parent / "x.part").write_bytes(b"half")
    assert world.task.run(lambda f: f.step("s", work, 1)) == 1
    assert path.exists()
    assert any(path.name in line for line in world.task.host.warnings)


def test_a_file_of_another_ledger_gives_nobody_a_foreign_result(tmp_path: Path) -> None:
    """Executions are numbered by each ledger: number 1 there is somebody else here."""
    there = World(tmp_path, ledger_patience=1.0)
    path = spool_one(there)
    clock = ManualClock()
    other = DurableTask(run_id="another", ledger=MemoryLedger(clock), clock=clock, settings=there.settings)
    assert other.run(lambda f: f.step("s", lambda n: f"other {n}", 1)) == "other 1"
    assert path.exists()
    assert any(path.name in line for line in other.host.warnings)
    assert there.task.run(lambda f: f.step("s", work, 1)) == 1
    assert RAN == [1]


def test_an_outcome_of_an_intent_that_this_ledger_does_not_know_stays(tmp_path: Path) -> None:
    world = World(tmp_path, ledger_patience=1.0)

    def body(f: Flow) -> None:
        world.ledger.arm(down=(2, 10**9))
        f.effect("e", work, 1, key="k")

    with pytest.raises(LedgerUnavailableError):
        world.task.run(body)
    [path] = world.spool.files()
    clock = ManualClock()
    other = DurableTask(ledger=MemoryLedger(clock), clock=clock, settings=world.settings)
    assert other.run(lambda f: f.step("s", work, 2)) == 2
    assert path.exists()


def test_a_spool_that_cannot_be_written_hides_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, ledger_patience=1.0)
    (tmp_path / "spool").write_text("a file where the folder should be")

    def body(f: Flow) -> None:
        world.ledger.arm(down=(1, 10**9))
        f.step("s", work, 1)

    with pytest.raises(LedgerUnavailableError) as caught:
        world.task.run(body)
    assert any("could not be kept in the spool" in note for note in caught.value.__notes__)


def test_files_that_vanish_while_they_are_listed_are_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, ledger_patience=1.0)
    path = spool_one(world)
    real = Path.stat

    def gone(self: Path, **options: bool) -> object:
        if self == path:
            path.unlink(missing_ok=True)
        return real(self, **options)

    monkeypatch.setattr(Path, "stat", gone)
    assert world.spool.take_in(world.ledger, TestingHost()) == 0


@dataclasses.dataclass
class Plain:
    """Be what is given."""

    n: int


@dataclasses.dataclass
class Receipt:
    """Be what an old release of the author's code gave."""

    number: int


def pay_before(n: int) -> Receipt:
    RAN.append(n)
    return Receipt(n)


@dataclasses.dataclass
class NewReceipt:
    """Be the same class after a release; it has a field more."""

    number: int
    currency: str


NewReceipt.__qualname__ = Receipt.__qualname__


def pay_now(n: int) -> NewReceipt:
    raise AssertionError("must not be called")


def test_an_effect_that_is_done_gives_plain_data_where_its_class_has_changed() -> None:
    """I17: old rows must load."""
    task = DurableTask()
    assert task.run(lambda f: f.effect("e", pay_before, 2, key="k")) == Receipt(2)
    got: object = task.run(lambda f: f.effect("e", pay_now, 2, key="k"))
    assert got == {"number": 2}
    assert RAN == [2]


def test_saving_never_stores_a_secret_nor_closes_the_authors_stream(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    with flow(secrets=("sk-1",)) as f:
        for value in ("sk-1", {"a": ["sk-1"]}, [Plain(1), {"k": "has sk-1"}]):
            with pytest.raises(FlowOptionError, match="secret"):
                f.save(value)
        with (tmp_path / "f").open("rb") as stream:
            f.save(stream)
            assert not stream.closed


def test_take_overs_answer_may_be_lost(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(1, 6):
        world.ledger.arm(lost=number)
        begun = world.clock.monotonic()
        assert world.task.run(lambda f: f.generation) == 1
        assert world.clock.monotonic() - begun < 20, f"statement {number}: waited for itself"


def test_an_attempt_that_cannot_start_gives_its_lease_back(tmp_path: Path) -> None:
    world = World(tmp_path, ledger_patience=0.0)
    world.ledger.arm(down=(4, 4))
    with pytest.raises(LedgerUnavailableError):
        world.task.run(lambda f: None)
    world.ledger.arm()
    standing = world.ledger.standing(world.task.execution)
    assert standing is not None
    assert standing.lease_left == 0


def ask_inside() -> str:
    answer: str = current_flow().llm("ask", "one")
    return answer


def test_a_step_whose_record_failed_finds_what_was_paid_inside_it(tmp_path: Path) -> None:
    world = World(tmp_path, ledger_patience=0.0)
    models = ScriptedModels()
    world.task.models = models

    def body(f: Flow) -> str:
        world.ledger.arm(down=(2, 2))  # the inner call is recorded, the step around it is not
        with pytest.raises(LedgerUnavailableError):
            f.step("outer", ask_inside)
        return f.step("outer", ask_inside)

    assert world.task.run(body) == "answer to: one"
    assert len(models.requests) == 1
