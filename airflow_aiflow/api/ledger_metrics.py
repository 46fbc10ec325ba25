"""
What ``GET /aiflow/metrics`` tells: the names, and from which figure of the ledger each one comes.

No label holds the id of a DAG or a run: who may see the whole may see these, and their number does not grow with the
deployment. A label whose words are known is there from the start with 0, so that the first one shows as a rise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from airflow_aiflow.api.exposition import Family, Sample
from airflow_aiflow.durable.effect import EffectState
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.figures import Figures
from airflow_aiflow.durable.sign import Sign
from airflow_aiflow.durable.stall import StallKind

SIGNS = tuple(sign.value for sign in Sign if sign is not Sign.OLDER)
RESUMING = tuple(sign for sign in SIGNS if sign != Sign.FIRST.value)
ENDINGS = ("succeeded", "failed", "cancelled", "paused", "let_go", "superseded", "lapsed")
KINDS = tuple(kind.value for kind in StallKind)
QUESTIONS = ("doubt", "approval", "conflict", "ask")


@dataclass(frozen=True, slots=True)
class Total:
    """
    Describe a counter that is a running total of the ledger.

    :param figure: its name in the ledger's tally.
    :param label: what the tally's label is called; empty: it has none.
    :param known: labels that are there from the start.
    """

    name: str
    figure: str
    meaning: str
    label: str = ""
    known: Sequence[str] = ()


TOTALS = (
    Total("aiflow_attempts_begun_total", "attempts_begun", "Attempts that took over an execution", "sign", SIGNS),
    Total(
        "aiflow_attempts_ended_total",
        "attempts_ended",
        "Attempts that ended; lapsed and superseded ones count when the next attempt finds them",
        "ending",
        ENDINGS,
    ),
    Total("aiflow_steps_recorded_total", "steps", "Steps whose result was recorded", "kind", ("step", "llm", "item")),
    Total("aiflow_intents_total", "intents", "Intents written before an effect is called", "", ("",)),
    Total("aiflow_model_calls_total", "model_calls", "Model calls that were paid", "model"),
    Total(
        "aiflow_model_calls_wasted_total", "model_calls_wasted", "Those of them that gave nothing to record", "model"
    ),
    Total("aiflow_model_calls_unpriced_total", "model_calls_unpriced", "Those of them without a known price", "model"),
    Total(
        "aiflow_model_cost_dollars_total",
        "model_cost",
        "US dollars paid for model calls, where prices are known",
        "model",
    ),
    Total(
        "aiflow_replay_steps_total",
        "ready_steps",
        "Steps that were recorded already when an attempt went on, ready to be replayed by it",
        "sign",
        RESUMING,
    ),
    Total("aiflow_replay_model_calls_total", "ready_calls", "Model calls among those steps", "sign", RESUMING),
    Total(
        "aiflow_replay_cost_dollars_total", "ready_cost", "US dollars that those model calls had cost", "sign", RESUMING
    ),
    Total("aiflow_stalls_total", "incidents", "Stalls that recovery acted on or told of, once each", "kind", KINDS),
    Total("aiflow_recoveries_total", "recoveries", "Requeues that Airflow has taken", "kind", KINDS),
)


def families(figures: Figures) -> Iterator[Family]:
    """
    Give what is told, in a fixed order.

    :param figures: one look at the ledger.
    """
    yield from _states(figures)
    yield from _now(figures)
    for total in TOTALS:
        yield Family(total.name, "counter", total.meaning, _samples(figures, total))
    yield _tokens(figures)
    yield _detection(figures)
    yield from _last_hour(figures)
    yield Family(
        "aiflow_ledger_commit_seconds",
        "gauge",
        "What one small commit took just now, with the way there and back",
        [Sample(figures.commit_seconds)],
    )
    yield Family(
        "aiflow_totals_behind_seconds",
        "gauge",
        "Age of the last moment that the totals cover; they are some 30 s behind",
        [Sample(figures.behind)],
    )


def _samples(figures: Figures, total: Total) -> list[Sample]:
    found = dict.fromkeys(total.known, 0.0)
    found |= {label: value for (name, label), value in figures.totals.items() if name == total.figure}
    return [Sample(value, {total.label: label} if total.label else {}) for label, value in found.items()]


def _states(figures: Figures) -> Iterator[Family]:
    stored = {(one.table, one.state): one.number for one in figures.stored}
    known = {one.table for one in figures.stored}
    exact = {label: value for (name, label), value in figures.now.items() if name == "executions"}
    executions = {state.value: stored.get(("executions", state.value), 0.0) for state in ExecutionState}
    told = executions | exact if "executions" in known else exact
    yield _by(
        "aiflow_executions",
        "Executions by state: running and paused counted (to 10,000), the others estimated where the table is large",
        "state",
        told.items(),
    )
    effects = [(state.value, stored.get(("effects", state.value), 0.0)) for state in EffectState]
    yield _by(
        "aiflow_effects",
        "Effects by state, estimated where the table is large",
        "state",
        effects if "effects" in known else [],
    )
    yield _by(
        "aiflow_estimated",
        "Whether the numbers by state of this table come from the planner's statistics",
        "table",
        sorted({(one.table, float(one.estimated)) for one in figures.stored}),
    )


def _now(figures: Figures) -> Iterator[Family]:
    def some(name: str, labels: Iterable[str]) -> list[tuple[str, float]]:
        return [(label, figures.now.get((name, label), 0.0)) for label in labels]

    yield _by(
        "aiflow_leases",
        "Leases: live ones are attempts at work, lapsed ones wait for recovery or a retry",
        "state",
        some("leases", ("live", "lapsed")),
    )
    [(_, unheard)] = some("unheard", ("",))
    yield Family(
        "aiflow_executions_unheard",
        "gauge",
        "Successes that Airflow has not been seen to hear of (to 10,000)",
        [Sample(unheard)],
    )
    [(_, doubts)] = some("in_doubt", ("",))
    yield Family("aiflow_effects_in_doubt", "gauge", "Effects whose outcome nobody knows (to 10,000)", [Sample(doubts)])
    yield _by(
        "aiflow_questions_open", "Questions that wait for a person (to 10,000)", "kind", some("questions", QUESTIONS)
    )


def _by(name: str, meaning: str, label: str, values: Iterable[tuple[str, float]]) -> Family:
    return Family(name, "gauge", meaning, [Sample(value, {label: text}) for text, value in values])


def _tokens(figures: Figures) -> Family:
    samples = [
        Sample(value, {"model": label, "direction": name.removeprefix("model_tokens_")})
        for (name, label), value in figures.totals.items()
        if name in ("model_tokens_in", "model_tokens_out")
    ]
    return Family("aiflow_model_tokens_total", "counter", "Tokens of model calls, in and out", samples)


def _detection(figures: Figures) -> Family:
    samples = []
    for kind in KINDS:
        samples.append(Sample(figures.totals.get(("detected_after", kind), 0.0), {"kind": kind}, "_sum"))
        samples.append(Sample(figures.totals.get(("incidents", kind), 0.0), {"kind": kind}, "_count"))
    meaning = "Seconds from the beginning of a stall until recovery found it"
    return Family("aiflow_recovery_detect_seconds", "summary", meaning, samples)


def _last_hour(figures: Figures) -> Iterator[Family]:
    ended = {one.state: one for one in figures.ended}
    states = [state.value for state in ExecutionState if state.finished]
    counts = [(state, float(ended[state].number if state in ended else 0)) for state in states]
    yield _by(
        "aiflow_executions_ended_last_hour",
        "Executions that ended within the last hour and have not begun again",
        "state",
        counts,
    )
    number = sum(count for _, count in counts)
    success, mean = [], []
    if number:
        success = [Sample(dict(counts)[ExecutionState.SUCCEEDED.value] / number)]
        mean = [Sample(sum(one.recoveries for one in figures.ended) / number)]
    yield Family("aiflow_success_ratio", "gauge", "Share of those that succeeded; absent where none ended", success)
    yield Family("aiflow_recoveries_mean", "gauge", "Mean number of requeues of those; absent where none ended", mean)
