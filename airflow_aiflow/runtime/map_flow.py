"""Put a map together from an author's words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from typing import Any

from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.durable.item_print import item_printer
from airflow_aiflow.durable.item_shard import ItemShard, read_shard
from airflow_aiflow.durable.policy import Duration
from airflow_aiflow.exceptions import FlowOptionError
from airflow_aiflow.runtime.current import flow_call
from airflow_aiflow.runtime.map_files import FileItems, items_of
from airflow_aiflow.runtime.map_report import MapReport
from airflow_aiflow.runtime.map_results import ListedResults, MapResults, NoResults, OrderedResults
from airflow_aiflow.runtime.map_rules import MapRules
from airflow_aiflow.runtime.map_shards import ShardWriter
from airflow_aiflow.runtime.map_source import ItemSource
from airflow_aiflow.runtime.maps import MapRun
from airflow_aiflow.runtime.payloads import result_type
from airflow_aiflow.runtime.reuse import read_age
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.steps import call_author, refuse_unfit

#: What ``results=`` may say.
RESULTS = ("list", "shards", "none")


def function_source(
    session: Session,
    name: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    item_key: Callable[[Any], str] | None,
    version: str | int | None,
    rules: MapRules,
    reuse: Duration | None,
) -> ItemSource:
    """
    Say what ``map`` does with each item.

    :param session: the attempt at work.
    :param name: the map's name.
    :param fn: called with the item and ``args``.
    :param args: further arguments, the same for all items.
    :param item_key: gives an item's own key; ``None``: its fingerprint and occurrence.
    :param version: changes the fingerprint.
    :param rules: the author's options.
    :param reuse: how old another run's record may be.
    """
    refuse_unfit("map", name, fn)
    return ItemSource(
        kind="item",
        name=name,
        printed=item_printer(name, fn, args, version=version, secrets=session.secrets),
        run=lambda item: call_author(fn, item, *args),
        as_type=result_type(fn),
        item_key=item_key,
        retries=rules.retries,
        reuse=read_age(reuse),
    )


def run_map(
    session: Session,
    source: ItemSource,
    items: Iterable[Any] | ArtifactRef,
    rules: MapRules,
    results: str,
    shard: tuple[int, int] | None = None,
) -> Any:
    """
    Run a map.

    :param session: the attempt at work.
    :param source: what is done with each item.
    :param items: a list, a generator or a stored file.
    :param rules: the author's options.
    :param results: ``list``: all in the order of the items; ``shards``: the reference of a manifest of files that hold
        them; ``none``: how many items are done.
    :param shard: which part of the items is done here; ``None``: all of them.
    :raises FlowOptionError: if ``results`` is another word, or the part is none; nothing ran.
    """
    if results not in RESULTS:
        raise FlowOptionError(f"map(): results must be 'list', 'shards' or 'none', got {results!r}")
    part = read_shard(shard)
    with flow_call(session):
        read = items_of(items) if part is None else _part_of(items_of(items), source, part)
        report = map_report(session, source.name, read)

        def over(taken: MapResults) -> None:
            MapRun(session, source, rules, taken, report).over(read)

        if results == "shards":
            return _in_shards(session, source.name, report, over)
        kept = ListedResults()
        over(kept if results == "list" else NoResults())
        return kept.values if results == "list" else report.count


def _in_shards(session: Session, name: str, report: MapReport, over: Callable[[MapResults], None]) -> ArtifactRef:
    writer = ShardWriter(session, name)
    try:
        over(OrderedResults(writer.write))
        return writer.close(report.failures)
    finally:
        writer.drop()


def _part_of(items: Iterable[Any], source: ItemSource, part: ItemShard) -> Iterable[Any]:
    """Leave the items of other parts out; of those whose part nobody can tell, the first one tells."""

    def ours(item: Any) -> bool:
        try:
            digest, key = source.print(item)
        except Exception:  # the author's, or the item's: it is met again where the item is begun
            return part.index == 0
        return part.has(digest if key is None else key)

    found = (item for item in items if ours(item))
    return list(found) if isinstance(items, Sized) else found


def map_report(session: Session, name: str, items: Iterable[Any]) -> MapReport:
    """
    Make what tells how far a map is.

    :param session: the attempt at work.
    :param name: the map's name.
    :param items: what it runs over.
    """
    services, recorder = session.services, session.recorder
    file = items if isinstance(items, FileItems) else None
    total = len(items) if isinstance(items, Sized) else None if file is None else file.length
    return MapReport(
        name,
        total,
        services.clock,
        lambda line, warning: services.host.log(services.host.redact(line), warning=warning),
        lambda done, of, message: recorder.note("progress", {"done": done, "total": of, "message": message}),
        None if file is None else file.share,
    )
