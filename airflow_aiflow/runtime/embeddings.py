"""
Embed a list of texts: each text once for its meaning, so many to a call as a batch holds.

Equal texts of a list are one. What is recorded is a text's place in its batch's file, by the text's own fingerprint: a
list that grew, shrank or was shuffled costs what is new in it, in another run too where ``reuse`` says so.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from functools import partial
from typing import Any

from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.durable.budget import read_budget
from airflow_aiflow.durable.item_print import part_printer
from airflow_aiflow.durable.limit import check_limit_name
from airflow_aiflow.durable.policy import Duration, check_name, is_count, seconds
from airflow_aiflow.exceptions import FlowOptionError, ItemsFailedError, StepInputError
from airflow_aiflow.llm.call import ModelCaller, check_text
from airflow_aiflow.llm.embedding import EmbedRequest, Embeds, Encoder, VectorCaller
from airflow_aiflow.runtime.batch_crew import BatchCrew
from airflow_aiflow.runtime.current import flow_call
from airflow_aiflow.runtime.map_files import items_of
from airflow_aiflow.runtime.map_flow import map_report
from airflow_aiflow.runtime.map_rules import MapRules
from airflow_aiflow.runtime.map_source import ItemSource, Unreadable
from airflow_aiflow.runtime.maps import MapRun
from airflow_aiflow.runtime.model_calls import ModelCalls
from airflow_aiflow.runtime.reuse import read_age
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.steps import Ran
from airflow_aiflow.runtime.vectors import VectorPlaces, require_arrow, save_list, store_batch

#: Characters of a text: 32,000 tokens, of which no embedding model takes more, in a language of eight characters to a
#: token. A longer one is a document that somebody forgot to split.
LONGEST_TEXT = 256_000

#: Seconds that a batch waits for others to be committed with: it is a group by itself, and a kill would lose it.
FLUSH_SECONDS = 0.01

#: Where the text stands among the parts of its fingerprint.
TEXT_PLACE = 1


class Texts:
    """
    Go through a list, give each distinct text once, and remember the order.

    :param name: of the step; for messages.
    :param texts: as the author gave them.
    :param tolerant: whether a text that can't be sent is a failed one, instead of the end.
    """

    def __init__(self, name: str, texts: Iterable[Any], *, tolerant: bool = False) -> None:
        self._name, self._texts, self._tolerant = name, texts, tolerant
        #: For each text of the list, which of the distinct ones it is.
        self.order = array("q")
        #: For each of the distinct ones, where in the list it stands first.
        self.first = array("q")

    def __iter__(self) -> Iterator[str | Unreadable]:
        numbers: dict[bytes, int] = {}
        for number, text in enumerate(self._texts):
            item: str | Unreadable = text
            try:
                # Half a SHA-256: a list would need 10^19 texts for two of them to meet.
                known = hashlib.sha256(self._checked(number, text)).digest()[:16]
            except Exception as error:
                if not self._tolerant:
                    raise
                item, known = Unreadable(error), b"number %d" % number
            fresh = known not in numbers
            if fresh:
                numbers[known] = len(numbers)
                self.first.append(number)
            self.order.append(numbers[known])
            if fresh:
                yield item

    def _checked(self, number: int, text: Any) -> bytes:
        where = f"embed '{self._name}': text {number}"
        if type(text) is Unreadable:
            raise text.error
        if not isinstance(text, str):
            raise StepInputError(f"{where} is no str but {type(text).__name__}. Nothing was sent for it")
        if not text.strip():
            raise StepInputError(f"{where} is empty: it has no vector. Leave it out of the list")
        if len(text) > LONGEST_TEXT:
            raise StepInputError(
                f"{where} has {len(text):,} characters, more than any embedding model takes whole "
                f"({LONGEST_TEXT:,}): split it into paragraphs. Nothing was sent for it"
            )
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise StepInputError(
                f"{where} holds half of a surrogate pair at {error.start}, which no UTF-8 has. Nothing was sent for it"
            ) from None


class Embedding:
    """
    Embed one list.

    :param session: the attempt at work.
    :param models: makes the attempt's model calls.
    :param name: the step's name.
    :param encoder: embeds in this process; ``None``: the connection's model does.
    :param batch_size: most texts of a call.
    :param max_workers: calls in flight at once.
    :param on_item_error: what a text without a vector means.
    :param max_item_attempts: tries of a batch, where texts may fail.
    :param reuse: how old another run's record may be.
    :param version: changes the fingerprint.
    :param options: those of ``flow.llm`` that say which model, under which limit and budget.
    """

    def __init__(
        self,
        session: Session,
        models: ModelCalls,
        name: str,
        *,
        encoder: Encoder | None,
        batch_size: int,
        max_workers: int,
        on_item_error: str | float,
        max_item_attempts: int,
        reuse: Duration | None,
        version: str | int | None,
        **options: Any,
    ) -> None:
        check_name("embed", name)
        if not is_count(batch_size) or not batch_size:
            raise FlowOptionError(f"embed(): batch_size must be a whole number from 1, got {batch_size!r}")
        if encoder is not None and not isinstance(encoder, Encoder):
            raise FlowOptionError(f"embed(): encoder must have a name and encode(texts), got {type(encoder).__name__}")
        rules = MapRules(max_workers, on_item_error, max_item_attempts, flush_interval=FLUSH_SECONDS)
        rules.check("embed")
        # However slow the ledger is, a kill repeats what workers have in hand and as much that they have handed over.
        self._rules = replace(rules, batch_commit=batch_size * max_workers)
        require_arrow()
        self._session, self._models, self._name = session, models, name
        self._encoder, self._size, self._version = encoder, batch_size, version
        self._sample = self._request((), options)
        self._options, self._reuse = options, read_age(reuse)
        self._places = VectorPlaces()

    def _request(self, texts: tuple[str, ...], options: Mapping[str, Any]) -> EmbedRequest:
        limit, settings = options["rate_limit"], self._session.services.settings
        return EmbedRequest(
            prompt="",
            llm_conn_id=options["llm_conn_id"] or settings.default_llm_conn_id,
            model_id=options["model_id"],
            model_settings=options["model_settings"],
            fallback_conn_ids=(),  # another model's vectors lie in another space
            timeout=seconds(options["timeout"], "timeout"),
            rate_limit=None if limit is None else check_limit_name(limit),
            budget=read_budget(options["budget"]),
            texts=texts,
        )

    def over(self, texts: Iterable[str] | ArtifactRef) -> ArtifactRef:
        """
        Embed the texts.

        :param texts: a list, a generator or a stored file of JSON lines, each a text.
        :return: the file of all vectors, in the order of the texts.
        """
        if isinstance(texts, str | bytes):
            raise TypeError(f"embed '{self._name}': texts must be a list of texts, got one {type(texts).__name__}")
        session = self._session
        with flow_call(session):
            found = Texts(self._name, items_of(texts), tolerant=self._rules.tolerant)
            # A list is looked through before anything is sent; a generator as it is read.
            distinct: Iterable[str | Unreadable] = list(found) if isinstance(texts, Sized) else found
            report = map_report(session, self._name, distinct)
            crew = partial(BatchCrew, size=self._size, work=self._embed)
            MapRun(session, self._source(found.first), self._rules, self._places, report, crew).over(distinct)
            if self._places.failed and self._places.width is None:
                raise ItemsFailedError(report.complaint(self._rules, session.attempt.execution.run_id))
            return save_list(session, self._name, found.order, self._places, gaps=self._rules.tolerant)

    def _source(self, first: Sequence[int]) -> ItemSource:
        sample = self._sample
        who: list[tuple[str, Any]] = [("encoder", self._encoder.name)] if self._encoder is not None else []
        if self._encoder is None:
            parts = sample.fingerprint_parts()[2:5]
            who = list(zip(("connection", "model", "settings"), parts, strict=True))
        named = [("kind", "embed"), ("text", ""), *who, ("version", self._version)]
        return ItemSource(
            kind="llm",
            name=self._name,
            printed=part_printer(named, TEXT_PLACE, secrets=self._session.secrets, check=partial(check_text, "a text")),
            run=lambda text: self._embed([text]),
            timeout=self._models.step_timeout(sample),
            reuse=self._reuse,
            listed=lambda number: first[number],
        )

    def _embed(self, texts: Sequence[str]) -> Ran:
        request = self._request(tuple(texts), self._options)
        ran = self._models.ask(self._name, request, self._caller)
        return Ran(store_batch(self._session, self._name, ran.value), ran.usage)

    def _caller(self) -> ModelCaller:
        embeds = None if self._encoder is not None else self._models.caller()
        return VectorCaller(embeds if isinstance(embeds, Embeds) else None, self._encoder, lambda: self._places.width)
