"""
A batch of model calls: items from anywhere, a prompt rendered for each, answers in files, each call paid once.

All items are read before the first call (see ``item_spool``), so what can't be asked is known before anything is paid:
by ``on_item_error`` it ends the batch there, or is a failed item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_aiflow.durable.folder import Folder
from airflow_aiflow.durable.item_shard import ItemShard
from airflow_aiflow.exceptions import ItemInputError, ItemsFailedError
from airflow_aiflow.runtime.current import flow_call
from airflow_aiflow.runtime.item_spool import Ask, ItemSpool
from airflow_aiflow.runtime.map_flow import map_report
from airflow_aiflow.runtime.map_results import OrderedResults
from airflow_aiflow.runtime.map_rules import MapRules
from airflow_aiflow.runtime.map_source import Chunks, Unreadable
from airflow_aiflow.runtime.maps import MapRun
from airflow_aiflow.runtime.model_calls import ModelCalls
from airflow_aiflow.runtime.prompt_template import PromptTemplate
from airflow_aiflow.runtime.result_files import ResultFiles, ResultFormat
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.stored_folder import StoredFolder

#: Items that are read between two looks whether the attempt is to end.
READ_AT_ONCE = 500

#: Items that can't be asked about and have a line of the log; the rest is counted.
MOST_NAMED = 10

#: Gives an item's own key; raises ``ItemInputError``.
KeyOf = Callable[[Any, str], str]


@dataclass(frozen=True, slots=True)
class Batch:
    """
    Describe a batch.

    :param name: of its step.
    :param read: gives the items; called once.
    :param template: makes the prompts.
    :param params: the run's, for the template.
    :param key_of: gives an item's own key; ``None``: items have none.
    :param options: those of ``flow.llm``.
    :param rules: of the map.
    :param folder: where the results go.
    :param form: of the results' files.
    :param shard: which part of the items is done here; ``None``: all of them.
    """

    name: str
    read: Callable[[], Iterable[Any]]
    template: PromptTemplate
    params: Mapping[str, Any]
    key_of: KeyOf | None
    options: Mapping[str, Any]
    rules: MapRules
    folder: Folder
    form: ResultFormat
    shard: ItemShard | None


def key_reader(field: str | Callable[[Any], Any]) -> KeyOf:
    """
    Make what gives an item's key.

    :param field: the name of the item's field, or a function of the item.
    """

    def read(item: Any, name: str) -> str:
        if callable(field):
            value, what = field(item), "item_key"
        else:
            what = f"its field {field!r}"
            if not isinstance(item, Mapping) or field not in item:
                there = ", ".join(map(str, item)) if isinstance(item, Mapping) else f"it is a {type(item).__name__}"
                raise ItemInputError(f"item {name} has no field {field!r}, which item_key names; its fields: {there}")
            value = item[field]
        if value is None or isinstance(value, list | dict | float) or not str(value).strip():
            raise ItemInputError(f"item {name} has no key: {what} is {value!r}")
        key = str(value)
        if "\x00" in key or any("\ud800" <= sign <= "\udfff" for sign in key):
            raise ItemInputError(f"item {name} has no key that can be stored: {what} is {value!r}")
        return key

    return read


def run_batch(session: Session, models: ModelCalls, batch: Batch) -> dict[str, Any]:
    """
    Run a batch.

    :param session: the attempt at work.
    :param models: makes the calls.
    :param batch: what is to be done.
    :return: the manifest's address, or reference where the artifact store has it, and counts.
    :raises ItemInputError: if an item can't be asked about and none may fail; nothing was sent.
    :raises ItemsFailedError: if more items failed than may.
    """
    with flow_call(session), ItemSpool() as spool:
        _Reading(session, spool, batch).run()
        source = models.source(
            batch.name,
            batch.options,
            batch.rules,
            prompt_of=_prompt_of,
            item_key=None if batch.key_of is None else _key_of,
        )
        may_fail = batch.rules.tolerant
        files = ResultFiles(session, batch.folder, spool.keys(), batch.form, batch.shard, tolerant=may_fail)
        report = map_report(session, batch.name, range(spool.total))
        try:
            results = OrderedResults(files.write, files.write_failed)
            MapRun(session, source, batch.rules, results, report).over(spool.asks())
            execution = session.attempt.execution
            told = {"dag_id": execution.dag_id, "run_id": execution.run_id, "task_id": execution.task_id}
            # A process that was stopped meanwhile must not put its manifest over that of the attempt after it.
            with session.gate.hand(batch.name):
                address = files.close({**told, "repeated": spool.repeated})
        finally:
            files.drop()
        counts = {"items": spool.total, "succeeded": spool.total - files.failed, "failed": files.failed}
        session.services.host.log(
            f"aiflow: {batch.name}: {counts['succeeded']:,} of {spool.total:,} results in {files.files:,} files; "
            f"manifest {address}"
        )
        folder = batch.folder
        manifest = folder.ref(files.manifest_name) if isinstance(folder, StoredFolder) else address
        return {"manifest": manifest, **counts, "repeated": spool.repeated, "shards": files.files}


def _prompt_of(ask: Ask) -> str:
    return ask.prompt


def _key_of(ask: Ask) -> str:
    return ask.key or ""


class _Reading:
    """Fill the spool."""

    def __init__(self, session: Session, spool: ItemSpool, batch: Batch) -> None:
        self._session, self._spool, self._batch = session, spool, batch
        self._named: list[str] = []
        self._count = 0

    def run(self) -> None:
        """
        Read all items.

        :raises ItemInputError: if one can't be asked about and none may fail.
        :raises ItemsFailedError: if more than may can't be, or none can.
        """
        items = self._batch.read()
        try:
            chunks = Chunks(items)
            while not chunks.ended:
                self._session.gate.check()
                for item in chunks.next(READ_AT_ONCE):
                    self._take(item)
            if chunks.error is not None:
                raise chunks.error
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()
        self._judge()

    def _take(self, item: Any) -> None:
        number, batch = self._count, self._batch
        self._count += 1
        key, name = None, f"{number} of the list"
        try:
            if type(item) is Unreadable:
                raise item.error
            if batch.key_of is not None:
                key = name = batch.key_of(item, name)
                if batch.shard is not None and not batch.shard.has(key):
                    return
            prompt = batch.template.render(item, batch.params, name)
        except Exception as error:
            # Which part an item without a key belongs to nobody knows: it is the first one's to tell.
            if batch.shard is None or (batch.shard.index == 0 and key is None) or key is not None:
                self._fail(key, error)
            return
        if batch.key_of is None and batch.shard is not None and not batch.shard.has(prompt):
            return
        doubled = self._spool.add(key, prompt)
        if doubled is not None:
            self._told(doubled)

    def _fail(self, key: str | None, error: Exception) -> None:
        self._spool.fail(key, error)
        self._told(error)

    def _told(self, error: Exception) -> None:
        if not self._batch.rules.tolerant:
            error.add_note(f"aiflow: in step '{self._batch.name}', {self._session.where}. Nothing was sent")
            raise error
        if len(self._named) < MOST_NAMED:
            self._named.append(str(error))

    def _judge(self) -> None:
        spool, rules, log = self._spool, self._batch.rules, self._session.services.host.log
        again = f", {spool.repeated:,} came again and are done once" if spool.repeated else ""
        cant = f", {spool.failed:,} can't be asked about" if spool.failed else ""
        log(f"aiflow: {self._batch.name}: {spool.total:,} items to ask about{again}{cant}", warning=not spool.total)
        if not spool.failed:
            return
        more = f"; and {spool.failed - len(self._named):,} more" if spool.failed > len(self._named) else ""
        if rules.too_many(spool.failed, spool.total) or spool.failed == spool.total:
            raise ItemsFailedError(
                f"'{self._batch.name}': {spool.failed:,} of {spool.total:,} items can't be asked about, "
                f"on_item_error={rules.on_item_error}: {'; '.join(self._named)}{more}. Nothing was sent"
            )
