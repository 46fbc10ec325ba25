"""
Model calls as steps: the request decides the fingerprint, the answer carries what was paid.

A provider that answers "not now" for long does not hold a worker's slot: the task gives it back and comes again, with
no retry burnt, for as long as ``[aiflow] model_wait`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from inspect import iscoroutinefunction
from itertools import zip_longest
from typing import Any

from airflow_aiflow.durable.budget import read_budget
from airflow_aiflow.durable.fingerprint import print_parts
from airflow_aiflow.durable.item_print import PartOfItem, Print, part_printer
from airflow_aiflow.durable.limit import check_limit_name
from airflow_aiflow.durable.policy import Duration, seconds
from airflow_aiflow.exceptions import (
    AiflowConfigError,
    FlowOptionError,
    LedgerUnavailableError,
    ModelOutputError,
    ModelUnavailableError,
)
from airflow_aiflow.llm.call import DEFAULT_TIMEOUT, OUTPUT_TYPE, PART_NAMES, LlmRequest, ModelCaller, check_text
from airflow_aiflow.llm.retry import absence, call_with_retries, is_told_to_wait
from airflow_aiflow.runtime.budgets import Budgets
from airflow_aiflow.runtime.interrupts import author
from airflow_aiflow.runtime.map_rules import MapRules
from airflow_aiflow.runtime.map_source import ItemSource
from airflow_aiflow.runtime.paid_calls import LONGEST_LIMIT_WAIT, PaidCalls
from airflow_aiflow.runtime.pieces import Pieces, instead_of
from airflow_aiflow.runtime.replay import Spent
from airflow_aiflow.runtime.reuse import read_age
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.steps import Ran, StepCall

#: What ``llm`` takes as keywords, beside the prompt.
OPTIONS = frozenset(
    {
        "output_type",
        "llm_conn_id",
        "model_id",
        "system_prompt",
        "model_settings",
        "output_retries",
        "fallback_conn_ids",
        "rate_limit",
        "version",
        "timeout",
        "reuse",
        "stream",
    }
)

#: Where the prompt stands among the parts of a call's fingerprint.
PROMPT_PLACE = 1 + PART_NAMES.index("prompt")

#: Options that say nothing of the request itself.
NOT_THE_REQUEST = ("version", "timeout", "reuse")


class ModelCalls:
    """
    Turn an author's words into recorded model calls.

    :param session: the attempt at work.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._paid = PaidCalls(session)
        #: Whether a model answered since this attempt last gave its slot back.
        self._served = False

    def request(
        self,
        prompt: str,
        *,
        llm_conn_id: str | None = None,
        fallback_conn_ids: Sequence[str] | None = None,
        rate_limit: str | None = None,
        budget: object = None,
        stream: bool | Callable[[str], object] = False,
        **options: Any,
    ) -> LlmRequest:
        """
        Describe a call.

        :param prompt: what is asked.
        :param rate_limit: the name of the limit that it counts against.
        :param budget: of all calls of the step's name.
        :param stream: whether the answer's pieces are handed on: as events, or to a function.
        :raises FlowOptionError: if an option is wrong.
        """
        if not (isinstance(stream, bool) or callable(stream)) or iscoroutinefunction(stream):
            raise FlowOptionError(f"stream must be True, False or a plain function that takes a piece, got {stream!r}")
        return LlmRequest(
            prompt=prompt,
            llm_conn_id=llm_conn_id or self._session.services.settings.default_llm_conn_id,
            fallback_conn_ids=None if fallback_conn_ids is None else tuple(fallback_conn_ids),
            rate_limit=None if rate_limit is None else check_limit_name(rate_limit),
            budget=read_budget(budget),
            stream=stream is not False,
            on_text=None if isinstance(stream, bool) else stream,
            **options,
        )

    def maker(self, options: Mapping[str, Any]) -> Callable[[str], LlmRequest]:
        """
        Check the options of a map of calls once.

        :param options: those of ``llm``, and ``budget``.
        :return: what makes the request of one prompt.
        :raises TypeError: if an option is unknown.
        :raises FlowOptionError: if one is wrong, or asks for pieces: those of several answers would mix.
        """
        unknown = sorted(options.keys() - OPTIONS - {"budget"})
        if unknown:
            raise TypeError(f"llm_map() got an unexpected keyword {unknown[0]!r}")
        if options.get("stream"):
            raise FlowOptionError("stream= is for flow.llm: the pieces of a map's answers would mix")
        chosen = {name: value for name, value in options.items() if name not in NOT_THE_REQUEST}
        chosen["timeout"] = seconds(options.get("timeout", DEFAULT_TIMEOUT), "timeout")
        chosen["budget"] = read_budget(options.get("budget"))
        return lambda prompt: self.request(prompt, **chosen)

    def source(
        self,
        name: str,
        options: Mapping[str, Any],
        rules: MapRules,
        *,
        prompt_of: Callable[[Any], str] | None = None,
        item_key: Callable[[Any], str] | None = None,
    ) -> ItemSource:
        """
        Say what ``llm_map`` does with each prompt.

        :param name: the map's name.
        :param options: those of ``llm``, and ``budget``.
        :param rules: the author's options of the map.
        :param prompt_of: gives an item's prompt; ``None``: items are prompts.
        :param item_key: gives an item's own key; ``None``: it has none.
        :raises TypeError: if an option is unknown.
        :raises FlowOptionError: if one is wrong.
        """
        make = self.maker(options)
        sample = make("")
        parts = zip_longest(PART_NAMES, sample.fingerprint_parts(), fillvalue=OUTPUT_TYPE)
        named = [("kind", "llm"), *parts, ("version", options.get("version"))]
        check = partial(check_text, "prompt")
        printed: Print = part_printer(named, PROMPT_PLACE, secrets=self._session.secrets, check=check)
        text = prompt_of or (lambda prompt: prompt)
        return ItemSource(
            kind="llm",
            name=name,
            printed=printed if prompt_of is None else PartOfItem(printed, prompt_of),
            run=lambda item: self.ask(name, make(text(item))),
            as_type=sample.output_type,
            item_key=item_key,
            timeout=self.step_timeout(sample),
            retries=rules.retries,
            reuse=read_age(options.get("reuse")),
        )

    def call(
        self, name: str, request: LlmRequest, version: str | int | None, *, reuse: Duration | None = None
    ) -> StepCall:
        """
        Make the step of one call.

        :param name: the step's name.
        :param request: the call.
        :param version: changes the fingerprint.
        :param reuse: how old another run's record may be.
        """
        parts = zip_longest(PART_NAMES, request.fingerprint_parts(), fillvalue=OUTPUT_TYPE)
        printed = print_parts([("kind", "llm"), *parts, ("version", version)], secrets=self._session.secrets)
        return StepCall(
            kind="llm",
            name=name,
            fingerprint=printed.digest,
            printed=printed,
            run=partial(self.ask, name, request, written=[]),
            as_type=request.output_type,
            timeout=self.step_timeout(request),
            reuse=read_age(reuse),
        )

    def step_timeout(self, request: LlmRequest) -> float | None:
        """
        Leave a call under a limit its wait beside the task's ``step_timeout``.

        :param request: names the limit.
        """
        own = self._session.step_timeout
        return None if own is None or request.rate_limit is None else own + LONGEST_LIMIT_WAIT

    def ask(
        self,
        name: str,
        request: LlmRequest,
        caller: Callable[[], ModelCaller] | None = None,
        *,
        written: list[int] | None = None,
    ) -> Ran:
        """
        Make a call that is not recorded: under its limit and budgets, and again where it was surely not served.

        :param name: of its step.
        :param request: the call.
        :param caller: gives who makes it; ``None``: who makes the attempt's model calls.
        :param written: keeps the numbers of the events of its pieces over several tries.
        """
        session, pieces = self._session, [] if written is None else written
        with self._handing_on(name, request, pieces) as asked:
            try:
                answer = author(
                    call_with_retries,
                    self._paid.caller(name, asked, (caller or self.caller)()),
                    asked,
                    clock=session.services.clock,
                    stop=lambda: session.gate.signal is not None,
                )
            except ModelOutputError as error:
                # It was billed all the same.
                session.wasted(name, error.usage, "no fit answer")
                raise
            except ModelUnavailableError as error:
                self._give_slot_back(error)
                raise
        self._served = True
        if answer.conn_id and answer.conn_id != request.llm_conn_id:
            told = {"name": name, "asked": request.llm_conn_id, "answered": answer.conn_id, "model": answer.usage.model}
            session.recorder.note("fallback", told)
            session.services.host.log(f"aiflow: '{name}' was answered by connection '{answer.conn_id}'")
        return Ran(answer.value, answer.usage, instead_of(name, pieces))

    @contextmanager
    def _handing_on(self, name: str, request: LlmRequest, written: list[int]) -> Iterator[LlmRequest]:
        """Give the request that hands the answer's pieces on, where that is wished for."""
        if not request.stream:
            yield request
            return
        pieces = Pieces(self._session, name, request.on_text, written)
        try:
            yield replace(request, on_text=pieces.put)
        finally:
            pieces.close()

    def _give_slot_back(self, error: ModelUnavailableError) -> None:
        """Park the attempt where the provider asks for patience and the task's is not used up."""
        session = self._session
        if not is_told_to_wait(error) or session.gate.signal is not None:
            return
        served, self._served = self._served, False
        try:
            waited = session.services.ledger.spending.waits(session.taken.lease, session.taken.number, served=served)
        except LedgerUnavailableError:
            return
        delay = max(absence(error, waited), session.services.settings.reschedule_delay)
        if waited + delay > session.services.settings.model_wait:
            error.add_note(f"aiflow: the task has waited {waited:.0f} s for it, as long as [aiflow] model_wait allows")
            return
        session.gate.park(delay, f"{error}; asked again in {delay:.0f} s")

    def caller(self) -> ModelCaller:
        """
        Give who makes the attempt's model calls.

        :raises AiflowConfigError: if nobody does.
        """
        models = self._session.services.models
        if models is None:
            raise AiflowConfigError("no models here: install airflow-aiflow[llm] and set a connection of common-ai")
        return models()

    @property
    def budgets(self) -> Budgets:
        """What the attempt's model calls are paid from."""
        return self._paid.budgets

    @property
    def wasted(self) -> Spent:
        """What earlier attempts of this generation paid for answers that could not be recorded."""
        return self._paid.wasted_before
