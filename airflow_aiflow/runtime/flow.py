"""
What an author holds: the flow of one attempt.

Arguments of the author's function go by position, keywords are ours. Every method replays what is recorded, else runs
it, records it, and gives back the stored form.

A DAG file imports this module for an annotation, so what does the work is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, TypeVarTuple, overload

from airflow_aiflow.llm.call import DEFAULT_TIMEOUT
from airflow_aiflow.runtime.flow_batch import BatchCalls
from airflow_aiflow.runtime.flow_embed import EmbedCalls

if TYPE_CHECKING:
    from airflow_aiflow.durable.artifact import ArtifactRef
    from airflow_aiflow.durable.execution import Lease
    from airflow_aiflow.durable.policy import Duration
    from airflow_aiflow.runtime.replay import Spent
    from airflow_aiflow.runtime.session import Session

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: Seconds between two progress events: a page that follows a run is redrawn no faster.
PROGRESS_SECONDS = 1.0


class Flow(BatchCalls, EmbedCalls):
    """
    Be one attempt at work. Given to a durable task as its argument ``flow``; never made by an author.

    :param session: the attempt at work.
    :param before: model calls that earlier attempts of this generation recorded.
    """

    def __init__(self, session: Session, before: Spent) -> None:
        from airflow_aiflow.runtime.model_calls import ModelCalls

        super().__init__(session)
        self._before = before
        self._models = ModelCalls(session)
        self._progress_at: float | None = None

    def __aiflow_fingerprint__(self) -> str:
        """Count as a constant: a lambda that calls the flow captures it, and it decides no outcome."""
        return "flow"

    @classmethod
    def from_context(cls) -> Any:
        """
        Open a flow inside a plain ``@task``: ``with Flow.from_context() as flow:``.

        :raises NoFlowError: outside a running task.
        """
        from importlib import import_module

        # By name: the runtime knows Airflow only through its host, and nobody imports upwards.
        return import_module("airflow_aiflow.hooks.context").flow_from_context()

    @property
    def attempt(self) -> int:
        """The running number of this attempt, from 1."""
        return self._session.taken.number

    @property
    def lease(self) -> Lease:
        """The lease that this attempt holds: which row, and the fence on which it stands."""
        return self._session.taken.lease

    @property
    def generation(self) -> int:
        """How many fresh starts people asked for, from 1."""
        return self._session.taken.generation

    @property
    def resumed(self) -> bool:
        """Whether anything was recorded when this attempt began."""
        return bool(self._session.replay.steps or self._session.replay.effects)

    @property
    def spent(self) -> Spent:
        """What model calls of this generation cost, over all its attempts; replays count nothing."""

        return self._before + self._models.wasted + self._session.journal.paid

    def step(
        self,
        name: str,
        fn: Callable[[*Ts], R],
        *args: *Ts,
        cache_key: object = None,
        version: str | int | None = None,
        timeout: Duration | None = None,
        retries: int = 0,
        reuse: Duration | None = None,
    ) -> R:
        """
        Compute something once for the same name and arguments.

        :param name: the step's name.
        :param fn: the author's function; what a lambda captures counts as an argument.
        :param args: its arguments, by position.
        :param cache_key: what decides the outcome, instead of the arguments.
        :param version: changes the fingerprint, where the code changed and the arguments did not.
        :param timeout: seconds for one try.
        :param retries: tries after the first, inside this attempt.
        :param reuse: how old the result may be that another run of the DAG recorded in this task; ``None``: not asked.
        :return: the stored result.
        :raises StepInputError: if an argument has no canonical form; nothing ran.
        """
        from airflow_aiflow.durable.fingerprint import print_step
        from airflow_aiflow.durable.policy import seconds
        from airflow_aiflow.runtime.payloads import result_type
        from airflow_aiflow.runtime.reuse import read_age
        from airflow_aiflow.runtime.steps import StepCall, call_author, check_retries, refuse_unfit, run_step

        refuse_unfit("step", name, fn)
        check_retries("step", retries)
        printed = print_step(name, fn, args, cache_key=cache_key, version=version, secrets=self._session.secrets)
        call = StepCall(
            kind="step",
            name=name,
            fingerprint=printed.digest,
            printed=printed,
            run=lambda: call_author(fn, *args),
            as_type=result_type(fn),
            timeout=None if timeout is None else seconds(timeout, "timeout"),
            retries=retries,
            reuse=read_age(reuse),
        )
        result: R = run_step(self._session, call)
        return result

    def llm(
        self,
        name: str,
        prompt: str,
        *,
        output_type: type[T] | Any = str,
        llm_conn_id: str | None = None,
        model_id: str | None = None,
        system_prompt: str = "",
        model_settings: Mapping[str, Any] | None = None,
        output_retries: int | None = None,
        fallback_conn_ids: Sequence[str] | None = None,
        rate_limit: str | None = None,
        version: str | int | None = None,
        timeout: Duration = DEFAULT_TIMEOUT,
        reuse: Duration | None = None,
        stream: bool | Callable[[str], object] = False,
    ) -> Any:
        """
        Ask a model once for the same name, prompt, model and settings.

        :param name: the step's name.
        :param prompt: what is asked.
        :param output_type: the class of the answer, validated before it is recorded.
        :param llm_conn_id: a connection of common-ai; ``None``: the deployment's default.
        :param model_id: overrides the connection's model.
        :param rate_limit: the name of a limit that ``aiflow limits set`` made: the call waits for it.
        :param timeout: seconds for the whole call.
        :param reuse: how old the answer may be that another run of the DAG was given in this task; ``None``: not asked.
        :param stream: whether pieces of the answer are handed on while it is written: as events, or to a function.
        :return: the stored answer.
        """
        from airflow_aiflow.durable.policy import check_name, seconds
        from airflow_aiflow.runtime.steps import run_step

        check_name("llm", name)
        request = self._models.request(
            prompt,
            output_type=output_type,
            llm_conn_id=llm_conn_id,
            model_id=model_id,
            system_prompt=system_prompt,
            model_settings=model_settings,
            output_retries=output_retries,
            fallback_conn_ids=fallback_conn_ids,
            timeout=seconds(timeout, "timeout"),
            rate_limit=rate_limit,
            stream=stream,
        )
        return run_step(self._session, self._models.call(name, request, version, reuse=reuse))

    def llm_map(
        self,
        name: str,
        prompts: Iterable[str] | ArtifactRef,
        *,
        max_workers: int = 8,
        on_item_error: str | float = "fail",
        max_item_attempts: int = 3,
        results: str = "list",
        shard: tuple[int, int] | None = None,
        **options: Any,
    ) -> Any:
        """
        Ask a model for each prompt, several at a time, each answer recorded by itself.

        :param name: the step's name.
        :param prompts: a list, a generator, or a stored file of JSON lines.
        :param max_workers: calls in flight at once.
        :param on_item_error: see ``map``.
        :param max_item_attempts: see ``map``.
        :param results: see ``map``.
        :param shard: see ``map``.
        :param options: those of ``llm``.
        :return: the answers in the order of the prompts.
        """
        from airflow_aiflow.durable.policy import check_name
        from airflow_aiflow.runtime.map_flow import run_map
        from airflow_aiflow.runtime.map_rules import MapRules

        check_name("llm_map", name)
        rules = MapRules(max_workers, on_item_error, max_item_attempts)
        rules.check("llm_map")
        return run_map(self._session, self._models.source(name, options, rules), prompts, rules, results, shard)

    @overload
    def map(
        self,
        name: str,
        fn: Callable[..., R],
        items: Iterable[Any] | ArtifactRef,
        *args: Any,
        results: Literal["shards"],
        **options: Any,
    ) -> ArtifactRef: ...

    @overload
    def map(
        self,
        name: str,
        fn: Callable[..., R],
        items: Iterable[Any] | ArtifactRef,
        *args: Any,
        results: Literal["none"],
        **options: Any,
    ) -> int: ...

    @overload
    def map(
        self,
        name: str,
        fn: Callable[..., R],
        items: Iterable[Any] | ArtifactRef,
        *args: Any,
        item_key: Callable[[Any], str] | None = None,
        max_workers: int = 8,
        on_item_error: Literal["fail"] = "fail",
        version: str | int | None = None,
        batch_commit: int = 500,
        flush_interval: float = 0.2,
        reuse: Duration | None = None,
        results: Literal["list"] = "list",
        shard: tuple[int, int] | None = None,
    ) -> list[R]: ...

    @overload
    def map(
        self,
        name: str,
        fn: Callable[..., R],
        items: Iterable[Any] | ArtifactRef,
        *args: Any,
        on_item_error: str | float,
        **options: Any,
    ) -> list[R | None]: ...

    def map(  # type: ignore[misc]  # the overloads name their options where they matter
        self,
        name: str,
        fn: Callable[..., R],
        items: Iterable[Any] | ArtifactRef,
        *args: Any,
        item_key: Callable[[Any], str] | None = None,
        max_workers: int = 8,
        on_item_error: str | float = "fail",
        max_item_attempts: int = 3,
        version: str | int | None = None,
        batch_commit: int = 500,
        flush_interval: float = 0.2,
        reuse: Duration | None = None,
        results: str = "list",
        shard: tuple[int, int] | None = None,
    ) -> Any:
        """
        Run a function over items, several at a time, each item a unit that is recorded by itself.

        Results are committed in groups: a crash loses those of the last one, which run again.

        :param name: the map's name.
        :param fn: called with the item and ``args``; if it makes flow calls, those are recorded instead of the item.
        :param items: a list, a generator, or a stored file: JSON lines, CSV, Parquet, a manifest of results.
        :param args: further arguments, the same for all items.
        :param item_key: gives an item's own key; ``None``: its fingerprint and occurrence.
        :param max_workers: threads.
        :param on_item_error: ``fail``; ``skip``: a failed item's result is ``None``; or the share that may fail.
        :param max_item_attempts: tries of an item where its failure is tolerated.
        :param batch_commit: most results that are uncommitted.
        :param flush_interval: seconds that a result waits for others at most.
        :param reuse: how old the result may be that another run of the DAG recorded in this task; ``None``: not asked.
        :param results: ``list``; ``shards``: files of JSON lines, of which a manifest's reference is given; ``none``:
            how many items are done. Only a list is in memory.
        :param shard: (index, of): do the items of this part, by their keys, else by what they are; for mapped tasks.
        :return: the results in the order of the items.
        """
        from airflow_aiflow.runtime.map_flow import function_source, run_map
        from airflow_aiflow.runtime.map_rules import MapRules

        rules = MapRules(max_workers, on_item_error, max_item_attempts, batch_commit, flush_interval)
        rules.check("map")
        source = function_source(
            self._session, name, fn, args, item_key=item_key, version=version, rules=rules, reuse=reuse
        )
        return run_map(self._session, source, items, rules, results, shard)

    def emit(self, kind: str, /, **data: Any) -> None:
        """
        Write an event that others can follow; committed before this returns.

        :param kind: what happened.
        :param data: anything that can be stored; secrets are masked.
        """
        from airflow_aiflow.durable.policy import check_name
        from airflow_aiflow.runtime.payloads import masked

        check_name("emit", kind)
        self._session.gate.check(replay=True)
        self._session.recorder.event(kind, masked(data, self._session.services.host.redact))

    def progress(self, done: int, total: int | None = None, message: str = "") -> None:
        """
        Say how far the task is; at most one event a second, the last one always.

        :param done: units done.
        :param total: units in all, where known.
        :param message: one line.
        """
        self._session.gate.check(replay=True)
        now = self._session.services.clock.monotonic()
        if done != total and self._progress_at is not None and now - self._progress_at < PROGRESS_SECONDS:
            return
        self._progress_at = now
        self.emit("progress", done=done, total=total, message=message)

    def save(self, value: Any, *, name: str | None = None, media_type: str | None = None) -> ArtifactRef:
        """
        Store bytes in the artifact store, as given, by content hash.

        :param value: text, bytes, a ``Path``, a binary stream, or anything that can be stored.
        :param name: what people see; never part of the address.
        :param media_type: guessed from the name where left out.
        """
        from airflow_aiflow.runtime.current import flow_call
        from airflow_aiflow.runtime.files import save_file

        with flow_call(self._session, counts=False):
            return save_file(self._session, value, name, media_type)

    def load(self, ref: ArtifactRef) -> Any:
        """
        Read an artifact back.

        :param ref: what ``save`` gave.
        """
        from airflow_aiflow.runtime.current import flow_call

        with flow_call(self._session, counts=False):
            return ref.load()
