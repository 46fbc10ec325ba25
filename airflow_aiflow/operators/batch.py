"""``BatchInferenceOperator``: one model call for each of up to a million items, each paid once, answers in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_aiflow.durable.budget import read_budget
from airflow_aiflow.durable.item_shard import read_shard
from airflow_aiflow.exceptions import FlowOptionError
from airflow_aiflow.hooks.attempt import check_on_clear
from airflow_aiflow.links import AiflowTimelineLink
from airflow_aiflow.llm.call import DEFAULT_TIMEOUT
from airflow_aiflow.runtime.map_rules import MAX_ITEM_ATTEMPTS, MapRules
from airflow_aiflow.runtime.prompt_template import PromptTemplate

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_aiflow.durable.attempt import OnClear, Recovery
    from airflow_aiflow.durable.budget import Budget
    from airflow_aiflow.durable.folder import Folder
    from airflow_aiflow.durable.policy import Duration
    from airflow_aiflow.hooks.context import Work
    from airflow_aiflow.runtime.batches import Batch
    from airflow_aiflow.runtime.flow import Flow
    from airflow_aiflow.runtime.result_files import ResultFormat

#: Name of the one step.
STEP = "batch"

#: Options of `flow.llm` that are no template fields.
LLM_OPTIONS = (
    "output_type",
    "model_settings",
    "output_retries",
    "fallback_conn_ids",
    "rate_limit",
    "version",
    "timeout",
    "reuse",
)

#: Model calls in flight at once.
MAX_WORKERS = 16


def shards(of: int) -> list[list[int]]:
    """
    Give what ``.expand(shard=shards(8))`` maps over: each task does the items whose keys are its.

    :param of: how many tasks share the items.
    """
    return [[index, of] for index in range(of)]


class BatchInferenceOperator(BaseOperator):
    """
    Ask a model about each item, once for the same item, however often the task is tried.

    Items come from one of ``items``, ``items_sql`` and ``items_path``.

    :param items: a list, an ``ArtifactRef``, or what a task above gave; a function is called by Airflow with
        ``context`` and ``jinja_env``, as any templated field, and may give a generator.
    :param items_sql: a query, templated, or the name of a ``.sql`` file; each row is an item.
    :param items_conn_id: the connection that the query runs through: any database that Airflow has a hook for.
    :param items_path: a file of JSON lines, CSV or Parquet, or a manifest of results: ``s3://bucket/path``; with a
        slash at its end a folder of such files, with ``*`` in its last part some of it, in the order of their names.
    :param item_key: the name of the field that names an item, or a function that gives it; ``None``: an item is what
        its prompt is.
    :param prompt: Jinja, rendered for each item with ``item`` and ``params``; no template field.
    :param llm_conn_id: a connection of common-ai; ``None``: the deployment's default.
    :param model_id: overrides the connection's model.
    :param system_prompt: instructions that go before each prompt.
    :param output_type: the class of an answer, validated before it is recorded.
    :param model_settings: such as ``temperature`` or ``max_tokens``, in pydantic-ai's names.
    :param output_retries: how often the model is asked again when its answer does not fit ``output_type``.
    :param fallback_conn_ids: asked in order when the one before surely did not take the call.
    :param result_path: the folder for the answers: ``s3://bucket/path``; ``None``: the artifact store.
    :param result_format: ``jsonl`` or ``parquet``.
    :param reuse: how old an answer may be that another run of the DAG was given for the same item; ``None``: not asked.
    :param on_item_error: ``fail``, ``skip``, or the share of items that may fail.
    :param max_workers: calls in flight at once.
    :param rate_limit: the name of a limit that ``aiflow limits set`` made.
    :param budget: what the task's calls may cost, over all attempts and map indexes of a run.
    :param max_item_attempts: tries of an item where its failure is tolerated.
    :param batch_commit: most answers that are uncommitted.
    :param flush_interval: seconds that an answer waits for others at most.
    :param version: changes every item's fingerprint: they are asked about again.
    :param timeout: seconds for one call.
    :param shard: (index, of): do the items whose keys are of this part; for ``.expand(shard=shards(8))``.
    :param on_clear: what a cleared task does: ``auto``, ``resume`` or ``fresh``; ``None``: the deployment's word.
    :param recovery: as of ``@task.durable``.
    :param max_recoveries: as of ``@task.durable``.
    :raises FlowOptionError: if an option is wrong, while the DAG is parsed.
    """

    template_fields: Sequence[str] = (
        "items",
        "items_sql",
        "items_conn_id",
        "items_path",
        "llm_conn_id",
        "model_id",
        "system_prompt",
        "result_path",
        "shard",
    )
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"items_sql": "sql"}  # noqa: RUF012
    ui_color = "#e6f2ef"
    operator_extra_links = (AiflowTimelineLink(),)
    _work: Work | None = None

    def __init__(
        self,
        *,
        prompt: str,
        items: Any = None,
        items_sql: str | None = None,
        items_conn_id: str | None = None,
        items_path: str | None = None,
        item_key: str | Callable[[Any], Any] | None = None,
        llm_conn_id: str | None = None,
        model_id: str | None = None,
        system_prompt: str = "",
        output_type: Any = str,
        model_settings: Mapping[str, Any] | None = None,
        output_retries: int | None = None,
        fallback_conn_ids: Sequence[str] | None = None,
        result_path: str | None = None,
        result_format: ResultFormat = "jsonl",
        reuse: Duration | None = None,
        on_item_error: str | float = "fail",
        max_workers: int = MAX_WORKERS,
        rate_limit: str | None = None,
        budget: float | str | Budget | None = None,
        max_item_attempts: int = MAX_ITEM_ATTEMPTS,
        batch_commit: int = 500,
        flush_interval: float = 0.2,
        version: str | int | None = None,
        timeout: Duration = DEFAULT_TIMEOUT,
        shard: Any = None,
        on_clear: OnClear | None = None,
        recovery: Recovery = "auto",
        max_recoveries: int | None = None,
        **kwargs: Any,
    ) -> None:
        # Written out above, and not taken from the rest: `partial` refuses what it does not find in the signature.
        given = locals()
        super().__init__(**kwargs)
        self.items, self.items_sql, self.items_path, self.items_conn_id = items, items_sql, items_path, items_conn_id
        self.item_key, self.prompt, self.shard = item_key, prompt, shard
        self.llm_conn_id, self.model_id, self.system_prompt = llm_conn_id, model_id, system_prompt
        self.result_path, self.result_format = result_path, result_format
        self.llm_options = {name: given[name] for name in LLM_OPTIONS}
        self.rules = MapRules(max_workers, on_item_error, max_item_attempts, batch_commit, flush_interval)
        self.budget, self.recovery, self.max_recoveries = read_budget(budget), recovery, max_recoveries
        self.on_clear = None if on_clear is None else check_on_clear(on_clear)
        self._check()

    def _check(self) -> None:
        """Refuse, while the DAG is parsed, what can't work."""
        self.rules.check(type(self).__name__)
        PromptTemplate(self.prompt)
        sources = {"items": self.items, "items_sql": self.items_sql, "items_path": self.items_path}
        given = [name for name, value in sources.items() if value is not None]
        if len(given) != 1:
            found = f"{' and '.join(given)} are given" if given else "none of them is given"
            raise FlowOptionError(f"items come from one of items=, items_sql= and items_path=; {found}")
        if (self.items_sql is None) != (self.items_conn_id is None):
            raise FlowOptionError("items_sql= and items_conn_id= go together: the query, and where it runs")
        if self.item_key is not None and not isinstance(self.item_key, str) and not callable(self.item_key):
            raise FlowOptionError(f"item_key is the name of a field, or a function of an item; got {self.item_key!r}")
        if self.result_format not in ("jsonl", "parquet"):
            raise FlowOptionError(f"result_format must be 'jsonl' or 'parquet', got {self.result_format!r}")

    def execute(self, context: Context) -> dict[str, Any]:
        """
        Ask about the items, and write the answers.

        :return: ``manifest`` (its address, or an ``ArtifactRef`` without ``result_path``) and the counts ``items``,
            ``succeeded``, ``failed``, ``repeated`` and ``shards``.
        """
        from airflow_aiflow.hooks.context import work_from_context
        from airflow_aiflow.runtime.batches import run_batch

        self._work = work_from_context(
            context,
            on_clear=self.on_clear,
            recovery=self.recovery,
            max_recoveries=self.max_recoveries,
            budget=self.budget,
        )
        params = dict(context.get("params") or {})
        with ExitStack() as stack:

            def body(flow: Flow) -> dict[str, Any]:
                batch = self._batch(flow, params, stack)
                return run_batch(flow._session, flow._models, batch)

            return self._work.run(body)

    def _batch(self, flow: Flow, params: Mapping[str, Any], stack: ExitStack) -> Batch:
        from airflow_aiflow.runtime.batches import Batch, key_reader

        named = {"llm_conn_id": self.llm_conn_id, "model_id": self.model_id, "system_prompt": self.system_prompt}
        return Batch(
            name=STEP,
            read=self._read,
            template=PromptTemplate(self.prompt),
            params=params,
            key_of=None if self.item_key is None else key_reader(self.item_key),
            options={**self.llm_options, **named},
            rules=self.rules,
            folder=self._folder(flow, stack),
            form=self.result_format,
            shard=read_shard(self.shard),
        )

    def _folder(self, flow: Flow, stack: ExitStack) -> Folder:
        if self.result_path is None:
            from airflow_aiflow.runtime.stored_folder import StoredFolder

            return StoredFolder(flow._session, STEP)
        from airflow_aiflow.hooks.object_paths import open_folder

        folder = open_folder(self.result_path, "result_path")
        stack.callback(folder.close)
        return folder

    def _read(self) -> Any:
        from airflow_aiflow.runtime.map_files import items_of

        if self.items_sql is not None:
            from airflow_aiflow.hooks.item_query import query_rows

            assert self.items_conn_id is not None
            return query_rows(self.items_conn_id, self.items_sql)
        if self.items_path is not None:
            from airflow_aiflow.hooks.object_paths import read_path

            return read_path(self.items_path, "items_path")
        if isinstance(self.items, str | bytes | Mapping):
            raise FlowOptionError(
                f"items must be a list, an ArtifactRef or a generator, got {type(self.items).__name__}; a file's path "
                "goes to items_path="
            )
        return items_of(self.items)

    def on_kill(self) -> None:
        """Let calls in flight bring their answers, which are paid for; then the slot goes back."""
        if self._work is not None:
            self._work.on_kill()
