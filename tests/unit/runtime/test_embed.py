"""Embedding a list: each text is paid for once, many to a call, and what came is looked at before it counts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cryptography.fernet import Fernet

from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.durable.limit import Limit
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import (
    AiflowConfigError,
    ArtifactUnavailableError,
    BudgetExceededError,
    FlowOptionError,
    ItemsFailedError,
    ModelIncompleteError,
    ModelOutputError,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnavailableError,
    StepInputError,
)
from airflow_aiflow.llm.embedding import EmbedRequest
from airflow_aiflow.runtime.current import current_flow
from airflow_aiflow.runtime.vectors import read_vectors
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.storage.memory_artifacts import MemoryArtifactStore
from airflow_aiflow.testing import DurableTask, ManualClock, ScriptedModels
from airflow_aiflow.testing.models import vector_of

MONTH = timedelta(days=30)


def texts(number: int, start: int = 0) -> list[str]:
    return [f"Paragraph {n} of the licence." for n in range(start, start + number)]


def vectors_of(given: Sequence[str]) -> Any:
    return np.array([vector_of(text) for text in given], np.float32)


def embed(given: Any, **options: Any) -> Any:
    def body(f: Any) -> Any:
        ref = f.embed("vectors", given() if callable(given) else given, **({"batch_size": 10} | options))
        return ref, read_vectors(ref)

    return body


def sizes(models: ScriptedModels) -> list[int]:
    return sorted((len(request.texts) for request in models.embedded), reverse=True)


@pytest.fixture
def models() -> ScriptedModels:
    return ScriptedModels(price=Decimal("0.01"))


@pytest.fixture
def task(models: ScriptedModels) -> DurableTask:
    return DurableTask(models=models)


def test_vectors_come_in_the_order_of_the_texts_as_an_arrow_file(task: DurableTask, models: ScriptedModels) -> None:
    given = texts(105)
    random.Random(5).shuffle(given)

    def body(f: Any) -> Any:
        ref = f.embed("vectors", given, batch_size=10)
        return ref, ref.load()

    ref, content = task.run(body)
    assert (ref.media_type, ref.name) == ("application/vnd.apache.arrow.file", "vectors.arrow")
    table = pa.ipc.open_file(content).read_all()
    assert table.schema.field("vector").type == pa.list_(pa.field("item", pa.float32(), nullable=False), 8)
    flat = table.column("vector").combine_chunks().flatten().to_numpy().reshape(-1, 8)
    assert (flat == vectors_of(given)).all()
    assert sizes(models) == [10] * 10 + [5]


def test_equal_texts_are_one(task: DurableTask, models: ScriptedModels) -> None:
    given = texts(7) * 5 + texts(3)
    _, vectors = task.run(embed(given))
    assert (vectors == vectors_of(given)).all()
    assert sizes(models) == [7]


def test_a_generator_is_read_as_it_goes(task: DurableTask, models: ScriptedModels) -> None:
    _, vectors = task.run(embed(lambda: iter(texts(25) + texts(25))))
    assert (vectors == vectors_of(texts(25) * 2)).all()
    assert sizes(models) == [10, 10, 5]


def test_a_stored_file_of_lines_is_embedded(task: DurableTask) -> None:
    def body(f: Any) -> Any:
        lines = f.save("".join(f'"{text}"\n' for text in texts(12)), name="texts.jsonl")
        return read_vectors(f.embed("vectors", lines))

    assert (task.run(body) == vectors_of(texts(12))).all()


def test_no_text_gives_an_empty_file(task: DurableTask, models: ScriptedModels) -> None:
    _, vectors = task.run(embed([]))
    assert vectors.shape == (0, 0)
    assert not models.embedded


def test_a_second_attempt_pays_nothing_again_and_gives_the_same_file(task: DurableTask, models: ScriptedModels) -> None:
    first, _ = task.run(embed(texts(30)))
    again, _ = task.run(embed(texts(30)))
    assert again == first
    assert len(models.embedded) == 3


def test_a_list_that_grew_and_shifted_costs_what_is_new(task: DurableTask, models: ScriptedModels) -> None:
    task.run(embed(texts(30)))
    models.embedded.clear()
    longer = texts(4, start=1000) + texts(30)[::-1] + texts(3, start=2000)
    _, vectors = task.run(embed(longer))
    assert (vectors == vectors_of(longer)).all()
    assert sizes(models) == [7]


def test_what_a_batch_cost_counts_once(task: DurableTask) -> None:
    def body(f: Any) -> Any:
        f.embed("vectors", texts(30), batch_size=10)
        return f.spent

    spent = task.run(body)
    assert (spent.calls, spent.cost) == (3, Decimal("0.03"))
    assert spent.tokens_in == sum(len(text.split()) for text in texts(30))


class Nights:
    """Run the same task night after night on one ledger."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.ledger, self.store = MemoryLedger(self.clock), MemoryArtifactStore()
        self.models = ScriptedModels(price=Decimal("0.01"))
        self.settings = FlowSettings(**settings)
        self.count = 0

    def run(self, body: Any) -> Any:
        self.count += 1
        self.models.embedded.clear()
        self.task = DurableTask(
            ledger=self.ledger,
            store=self.store,
            models=self.models,
            clock=self.clock,
            settings=self.settings,
            run_id=f"night {self.count}",
        )
        return self.task.run(body)


def changed(given: list[str], share: float) -> list[str]:
    """Change a share of the texts, spread over the whole list."""
    chosen = set(random.Random(3).sample(range(len(given)), round(len(given) * share)))
    return [f"{text} Amended." if n in chosen else text for n, text in enumerate(given)]


def test_three_percent_of_changed_texts_cost_three_percent_of_the_calls() -> None:
    nights = Nights()
    nights.run(embed(texts(1000), reuse=MONTH))
    assert len(nights.models.embedded) == 100
    second = changed(texts(1000), 0.03)
    _, vectors = nights.run(embed(second, reuse=MONTH))
    assert (vectors == vectors_of(second)).all()
    assert sizes(nights.models) == [10, 10, 10]
    assert any("reused" in line and "run night 1" in line for line in nights.task.host.lines)
    assert "970 reused from earlier runs, 30 ran" in nights.task.host.lines[-1]


def test_another_run_is_not_asked_without_reuse() -> None:
    nights = Nights()
    nights.run(embed(texts(20), reuse=MONTH))
    nights.run(embed(texts(20)))
    assert sizes(nights.models) == [10, 10]


def test_vectors_of_batches_are_encrypted_where_keys_are_configured() -> None:
    plain, locked = Nights(), Nights(payload_keys=(Fernet.generate_key(),))
    for nights in (plain, locked):
        nights.run(embed(texts(10), reuse=MONTH))
    first = vectors_of(texts(10))[0].tobytes()

    def holding(nights: Nights) -> int:
        values = (bytes.fromhex(uri.rpartition("/")[2]) for uri in nights.store.addresses() if "/value/" in uri)
        return sum(first in nights.store.get_value(address) for address in values)

    assert (holding(plain), holding(locked)) == (1, 0)
    _, vectors = locked.run(embed(texts(10), reuse=MONTH))
    assert (vectors == vectors_of(texts(10))).all()
    assert not locked.models.embedded


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("", "text 3 is empty"),
        (" \n\t", "text 3 is empty"),
        ("x" * 5_000_000, "text 3 has 5,000,000 characters"),
        (None, "text 3 is no str but NoneType"),
        ("\ud800", "text 3 holds half of a surrogate"),
    ],
)
@pytest.mark.parametrize("kind", [list, iter])
def test_a_text_that_has_no_vector_is_refused_before_it_is_sent(
    task: DurableTask, models: ScriptedModels, wrong: Any, said: str, kind: Any
) -> None:
    given = [*texts(3), wrong, *texts(3, start=10)]
    with pytest.raises(StepInputError, match=said):
        task.run(embed(lambda: kind(given), batch_size=1))
    asked = [text for request in models.embedded for text in request.texts]
    assert wrong not in asked
    if kind is list:
        assert not asked


@pytest.mark.parametrize(
    ("bend", "said"),
    [
        (lambda rows: rows[:-1], "10 texts were sent, and 9 x 8 came"),
        (lambda rows: [], "10 texts were sent"),
        (lambda rows: rows[0], "8 came instead of a vector for each"),
        (lambda rows: [[]] * len(rows), "10 x 0 came"),
        (lambda rows: [*rows[:-1], rows[-1][:-1]], "not lists of numbers of one length"),
        (lambda rows: [*rows[:-1], ["a"] * 8], "not lists of numbers"),
        (lambda rows: [*rows[:4], [float("nan")] * 8, *rows[5:]], "text 4 of the batch holds NaN"),
        (lambda rows: [*rows[:4], [1e39] * 8, *rows[5:]], "too large for float32"),
        (lambda rows: None, "one number came"),
    ],
)
def test_what_is_no_vector_is_not_recorded_and_was_paid_all_the_same(bend: Any, said: str) -> None:
    bad = [True]

    def give(request: EmbedRequest) -> Any:
        rows = [vector_of(text) for text in request.texts]
        return bend(rows) if bad[0] else rows

    models = ScriptedModels(vectors=give, price=Decimal("0.01"))
    task = DurableTask(models=models)
    spent: list[Any] = []

    def body(f: Any) -> Any:
        try:
            return embed(texts(10))(f)
        finally:
            spent.append(f.spent)

    with pytest.raises(ModelOutputError, match=said):
        task.run(body)
    assert (spent[0].calls, spent[0].cost) == (1, Decimal("0.01"))
    bad[0] = False
    _, vectors = task.run(body)
    assert (vectors == vectors_of(texts(10))).all()
    assert (spent[1].calls, spent[1].cost) == (2, Decimal("0.02"))


def test_a_width_that_changes_within_the_list_is_refused() -> None:
    counter = itertools.count(1)

    def give(request: EmbedRequest) -> Any:
        width = 8 if next(counter) == 1 else 4
        return [vector_of(text)[:width] for text in request.texts]

    task = DurableTask(models=ScriptedModels(vectors=give))
    with pytest.raises((ModelOutputError, FlowOptionError), match=r"4 numbers|of 8 and of 4"):
        task.run(embed(texts(60), max_workers=1))


def test_recorded_vectors_of_another_width_name_the_way_out() -> None:
    width = [8]
    models = ScriptedModels(vectors=lambda request: [vector_of(text)[: width[0]] for text in request.texts])
    task = DurableTask(models=models)
    task.run(embed(texts(20)))
    width[0] = 4
    with pytest.raises((ModelOutputError, FlowOptionError), match="another"):
        task.run(embed(texts(20) + texts(20, start=500)))
    _, vectors = task.run(embed(texts(20) + texts(20, start=500), version=2))
    assert vectors.shape == (40, 4)


@pytest.mark.parametrize(
    ("error", "times"), [(ModelUnavailableError("busy", status_code=503), 4), (ModelRequestError("no"), 1)]
)
def test_a_call_is_repeated_where_it_was_surely_not_served(error: Exception, times: int) -> None:
    def give(request: EmbedRequest) -> Any:
        raise error

    models = ScriptedModels(vectors=give)
    with pytest.raises(type(error)):
        DurableTask(models=models).run(embed(texts(5)))
    assert len(models.embedded) == times


def test_a_batch_that_fails_leaves_the_others_recorded() -> None:
    bad = {"Paragraph 55 of the licence."}

    def give(request: EmbedRequest) -> Any:
        if bad & set(request.texts):
            raise ModelRequestError("too long", status_code=400)
        return [vector_of(text) for text in request.texts]

    models = ScriptedModels(vectors=give)
    task = DurableTask(models=models)
    with pytest.raises(ModelRequestError) as caught:
        task.run(embed(texts(100), max_workers=1))
    assert any("in a batch of 10, the first of them number 50" in note for note in caught.value.__notes__)
    bad.clear()
    paid = sum(sizes(models))
    models.embedded.clear()
    task.run(embed(texts(100), max_workers=1))
    assert sum(sizes(models)) == 100 - (paid - 10)


# --- texts that may fail ----------------------------------------------------------------------------------------------


def refusing(bad: set[str], error: Exception | None = None, **options: Any) -> ScriptedModels:
    """Refuse each batch in which one of these texts stands."""

    def give(request: EmbedRequest) -> Any:
        if bad & set(request.texts):
            raise error or ModelRequestError("too long", status_code=400)
        return [vector_of(text) for text in request.texts]

    return ScriptedModels(vectors=give, **options)


def rows_of(ref: ArtifactRef) -> list[Any]:
    rows: list[Any] = pa.ipc.open_file(ref.load()).read_all().column("vector").to_pylist()
    return rows


def test_a_refused_text_is_null_and_the_others_of_its_batch_have_their_vectors() -> None:
    given = [*texts(3), texts(1)[0], *texts(97, start=3)]
    bad = {given[40], given[41], given[77]}
    models = refusing(bad, price=Decimal("0.01"))
    task = DurableTask(models=models)

    def body(f: Any) -> Any:
        ref = f.embed("vectors", given, batch_size=16, on_item_error=0.03)
        return read_vectors(ref), rows_of(ref), f.spent

    vectors, rows, spent = task.run(body)
    wrong = [40, 41, 77]
    assert [number for number, row in enumerate(rows) if row is None] == wrong
    assert np.isnan(vectors[wrong]).all()
    right = [number for number in range(len(given)) if number not in wrong]
    assert (vectors[right] == vectors_of([given[number] for number in right])).all()
    served = [request.texts for request in models.embedded if not bad & set(request.texts)]
    assert sorted(text for part in served for text in part) == sorted(set(given) - bad), "each one is paid once"
    assert (spent.calls, spent.cost) == (len(served), Decimal("0.01") * len(served)), "what is refused costs nothing"
    assert any("item 77: ModelRequestError: too long" in line for line in task.host.lines), "its number in the list"
    assert [(item.number, item.state) for *_, item in dead_letters(task)] == [(40, "dead"), (41, "dead"), (77, "dead")]


def test_refused_texts_are_left_alone_until_somebody_wants_them_tried_again() -> None:
    bad = {texts(30)[7]}
    models = refusing(bad)
    task = DurableTask(models=models)
    body = embed(texts(30), on_item_error="skip")
    first, _ = task.run(body)
    models.embedded.clear()
    bad.clear()
    again, _ = task.run(body)
    assert (again, models.embedded) == (first, []), "a further try leaves a dead text dead"
    [(_, pk, generation, _)] = dead_letters(task)
    assert task.ledger.items.retry_items(pk, generation) == 1
    _, vectors = task.run(body)
    assert sizes(models) == [1]
    assert (vectors == vectors_of(texts(30))).all()
    assert dead_letters(task) == []


def test_more_failed_texts_than_may_end_the_task_and_cost_nothing_twice() -> None:
    bad = {texts(20)[3], texts(20)[14]}
    models = refusing(bad)
    task = DurableTask(models=models)
    with pytest.raises(ItemsFailedError, match=r"2 items failed, more than on_item_error=0\.09 lets"):
        task.run(embed(texts(20), on_item_error=0.09))
    served = [text for request in models.embedded if not bad & set(request.texts) for text in request.texts]
    bad.clear()
    models.embedded.clear()
    _, vectors = task.run(embed(texts(20), on_item_error=0.09))
    assert (vectors == vectors_of(texts(20))).all()
    again = [text for request in models.embedded for text in request.texts]
    assert sorted(served + again) == sorted(texts(20))


def dead_letters(task: DurableTask) -> Any:
    return task.ledger.items.failed_of_run(task.execution.dag_id, task.execution.run_id)


def number_of(text: str) -> int:
    return int(text.split()[1])


@pytest.mark.parametrize("kind", [list, iter])
def test_a_text_that_has_no_vector_may_be_left_out(models: ScriptedModels, task: DurableTask, kind: Any) -> None:
    given: list[Any] = [*texts(3), "", *texts(3, start=10), None, "x" * 300_000, ""]
    _, vectors = task.run(embed(lambda: kind(given), on_item_error="skip"))
    wrong = [3, 7, 8, 9]
    assert np.flatnonzero(np.isnan(vectors).all(axis=1)).tolist() == wrong
    right = [number for number in range(10) if number not in wrong]
    assert (vectors[right] == vectors_of([given[number] for number in right])).all()
    assert sizes(models) == [6]
    lines = [line for line in task.host.lines if "StepInputError" in line]
    assert [f"text {number} " in line for number, line in zip(wrong, lines, strict=True)] == [True] * 4


def test_a_line_that_can_not_be_read_is_a_failed_text(task: DurableTask) -> None:
    def body(f: Any) -> Any:
        lines = f.save('"one"\n"tw\n"three"\n', name="texts.jsonl")
        return read_vectors(f.embed("vectors", lines, on_item_error=0.5))

    vectors = task.run(body)
    assert (vectors[[0, 2]] == vectors_of(["one", "three"])).all()
    assert np.isnan(vectors[1]).all()
    assert any("texts.jsonl, line 2" in line for line in task.host.lines)


def test_a_list_of_which_no_text_has_a_vector_is_no_success(task: DurableTask) -> None:
    with pytest.raises(ItemsFailedError, match="2 items failed"):
        task.run(embed(["", " "], on_item_error="skip"))


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (ModelRequestError("no such key", status_code=401), 1),
        (ModelTimeoutError("silent"), 3),
        (ModelIncompleteError("broken off"), 3),
    ],
)
def test_what_is_no_single_texts_fault_fails_its_batch_without_being_asked_in_smaller_ones(
    error: Exception, calls: int
) -> None:
    bad = {texts(30)[15]}
    models = refusing(bad, error)
    task = DurableTask(models=models)
    _, vectors = task.run(embed(texts(30), on_item_error="skip"))
    assert np.flatnonzero(np.isnan(vectors).all(axis=1)).tolist() == list(range(10, 20))
    assert sum(bool(bad & set(request.texts)) for request in models.embedded) == calls


def test_a_vector_of_nan_costs_one_text_and_what_it_cost_is_counted() -> None:
    bad = texts(8)[5]
    models = ScriptedModels(
        vectors=lambda request: [[float("nan")] * 8 if text == bad else vector_of(text) for text in request.texts],
        price=Decimal("0.01"),
    )
    task = DurableTask(models=models)

    def body(f: Any) -> Any:
        return read_vectors(
            f.embed("vectors", texts(8), batch_size=8, on_item_error="skip", max_item_attempts=1)
        ), f.spent

    vectors, spent = task.run(body)
    assert np.flatnonzero(np.isnan(vectors).all(axis=1)).tolist() == [5]
    assert (len(models.embedded), spent.cost) == (7, Decimal("0.07")), "8, 4 and 4, 2 and 2, 1 and 1"


def test_a_place_is_given_back_once_however_often_its_batch_was_halved() -> None:
    """A further list of the same name: its equal texts are further calls, as ever."""
    bad = {texts(4)[3]}
    models = refusing(bad)

    def body(f: Any) -> Any:
        f.embed("vectors", texts(4), batch_size=4, on_item_error="skip")
        bad.clear()
        return read_vectors(f.embed("vectors", texts(4), batch_size=4))

    task = DurableTask(models=models)
    assert (task.run(body) == vectors_of(texts(4))).all()
    asked = [number_of(text) for request in models.embedded for text in request.texts]
    assert asked[-4:] == [0, 1, 2, 3]


def test_a_budget_ends_the_list_whatever_texts_may_fail(task: DurableTask, models: ScriptedModels) -> None:
    with pytest.raises(BudgetExceededError):
        task.run(embed(texts(100), max_workers=1, budget=0.045, on_item_error="skip"))
    assert len(models.embedded) == 4


def test_a_budget_stops_before_the_batch_that_would_exceed_it(task: DurableTask, models: ScriptedModels) -> None:
    with pytest.raises(BudgetExceededError, match="Nothing was sent"):
        task.run(embed(texts(100), max_workers=1, budget=0.045))
    assert len(models.embedded) == 4
    task.run(embed(texts(100), max_workers=1, budget=0.2))
    assert len(models.embedded) == 10


def test_a_limit_counts_batches(task: DurableTask, models: ScriptedModels) -> None:
    task.ledger.limits.set_limit(Limit("embeddings", rpm=3))
    began = task.clock.monotonic()
    task.run(embed(texts(50), rate_limit="embeddings", max_workers=1))
    assert len(models.embedded) == 5
    assert task.clock.monotonic() - began >= 20


class OwnEncoder:
    """Be an encoder of one's own."""

    def __init__(self, name: str = "own/1") -> None:
        self.name = name
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str]) -> Any:
        self.asked += texts
        return vectors_of(texts)


def test_an_encoder_of_this_process_needs_no_connection(task: DurableTask, models: ScriptedModels) -> None:
    own = OwnEncoder()
    spent: list[Any] = []

    def body(f: Any) -> Any:
        given = embed(texts(30), encoder=own)(f)
        spent.append(f.spent)
        return given

    for _ in range(2):
        _, vectors = task.run(body)
        assert (vectors == vectors_of(texts(30))).all()
    assert len(own.asked) == 30
    assert not models.embedded
    assert (spent[0].calls, spent[0].cost, spent[0].unpriced) == (3, 0, 0)


def test_another_encoder_is_another_call(task: DurableTask) -> None:
    first, second = OwnEncoder("own/1"), OwnEncoder("own/2")
    for own in (first, second):
        task.run(embed(texts(5), encoder=own))
    assert (len(first.asked), len(second.asked)) == (5, 5)


def test_an_encoders_own_error_passes_unchanged(task: DurableTask) -> None:
    class Broken(OwnEncoder):
        def encode(self, texts: Sequence[str]) -> Any:
            raise RuntimeError("no weights")

    with pytest.raises(RuntimeError, match="no weights"):
        task.run(embed(texts(5), encoder=Broken()))


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 0},
        {"batch_size": True},
        {"max_workers": 0},
        {"encoder": object()},
        {"timeout": "soon"},
        {"on_item_error": "never"},
        {"max_item_attempts": 0},
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_sent(
    task: DurableTask, models: ScriptedModels, options: dict[str, Any]
) -> None:
    with pytest.raises(FlowOptionError):
        task.run(embed(texts(5), **options))
    assert not models.embedded


def test_models_that_can_not_embed_say_so() -> None:
    class AnswersOnly:
        def call(self, request: Any) -> Any:
            raise AssertionError("nobody asked")

        def close(self) -> None: ...

    with pytest.raises(AiflowConfigError, match="encoder="):
        DurableTask(models=AnswersOnly()).run(embed(texts(5)))


def test_vectors_that_the_store_does_not_take_are_kept_in_the_ledger() -> None:
    class Down(MemoryArtifactStore):
        down = True

        def put_value(self, data: bytes) -> bytes:
            if self.down:
                raise ArtifactUnavailableError("the store is down")
            return super().put_value(data)

    store, models = Down(), ScriptedModels()
    task = DurableTask(models=models, store=store)
    _, vectors = task.run(embed(texts(20)))
    assert (vectors == vectors_of(texts(20))).all()
    store.down = False
    _, vectors = task.run(embed(texts(25)))
    assert (vectors == vectors_of(texts(25))).all()
    assert sizes(models) == [10, 10, 5]
    assert any("are kept in the ledger's rows" in line for line in task.host.lines)


def test_only_a_file_of_vectors_is_read_as_one(task: DurableTask) -> None:
    ref = ArtifactRef("0" * 64, 3, "text/plain", "notes.txt", "memory://x")
    with pytest.raises(FlowOptionError, match="no file of vectors"):
        read_vectors(ref)


def test_an_async_task_embeds_too(task: DurableTask, models: ScriptedModels) -> None:
    async def body(f: Any) -> Any:
        return read_vectors(await f.embed("vectors", texts(15), batch_size=10))

    assert (task.run_async(body) == vectors_of(texts(15))).all()
    assert sizes(models) == [10, 5]


@pytest.mark.parametrize("one", ["a text", b"a text"])
def test_one_text_is_no_list(task: DurableTask, models: ScriptedModels, one: Any) -> None:
    with pytest.raises(TypeError, match="must be a list of texts"):
        task.run(lambda f: f.embed("vectors", one))
    assert not models.embedded


def test_a_secret_that_happens_to_stand_in_an_address_costs_no_paid_vectors() -> None:
    models = ScriptedModels()
    task = DurableTask(models=models, secrets=tuple("0123456789abcdef"))
    for _ in range(2):
        task.run(embed([f"{letter}!" for letter in "uvwxyz"]))
    assert len(models.embedded) == 1


def test_a_list_inside_an_item_of_a_map_is_recorded_by_its_texts(task: DurableTask, models: ScriptedModels) -> None:
    def one(number: int) -> list[int]:
        ref = current_flow().embed("vectors", texts(6, start=10 * number), batch_size=3)
        return list(read_vectors(ref).shape)

    for _ in range(2):
        assert task.run(lambda f: f.map("chapter", one, range(3))) == [[6, 8]] * 3
    assert sizes(models) == [3] * 6
