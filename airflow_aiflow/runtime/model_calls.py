"""Model calls as steps: the request decides the fingerprint, the answer carries what was paid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from airflow_aiflow.durable.fingerprint import print_parts
from airflow_aiflow.durable.policy import seconds
from airflow_aiflow.exceptions import AiflowConfigError, FlowOptionError, ModelOutputError
from airflow_aiflow.llm.call import DEFAULT_TIMEOUT, OUTPUT_TYPE, PART_NAMES, LlmRequest, ModelCaller
from airflow_aiflow.llm.retry import call_with_retries
from airflow_aiflow.runtime.interrupts import author
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

NOT_BUILT = ("rate_limit", "reuse", "stream")


class ModelCalls:
    """
    Turn an author's words into recorded model calls.

    :param session: the attempt at work.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def request(
        self,
        prompt: str,
        *,
        llm_conn_id: str | None = None,
        fallback_conn_ids: Sequence[str] | None = None,
        not_built: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> LlmRequest:
        """
        Describe a call.

        :param prompt: what is asked.
        :param not_built: options that a later release brings, with their values.
        :raises FlowOptionError: if one of those is used.
        """
        for option, value in (not_built or {}).items():
            if value:
                raise FlowOptionError(f"{option}= of a model call is not built yet; leave it out")
        return LlmRequest(
            prompt=prompt,
            llm_conn_id=llm_conn_id or self._session.services.settings.default_llm_conn_id,
            fallback_conn_ids=None if fallback_conn_ids is None else tuple(fallback_conn_ids),
            **options,
        )

    def maker(self, options: Mapping[str, Any]) -> Callable[[str], LlmRequest]:
        """
        Check the options of a map of calls once.

        :param options: those of ``llm``.
        :return: what makes the request of one prompt.
        :raises TypeError: if an option is unknown.
        """
        unknown = sorted(options.keys() - OPTIONS)
        if unknown:
            raise TypeError(f"llm_map() got an unexpected keyword {unknown[0]!r}")
        chosen = {name: value for name, value in options.items() if name not in (*NOT_BUILT, "version", "timeout")}
        chosen["timeout"] = seconds(options.get("timeout", DEFAULT_TIMEOUT), "timeout")
        chosen["not_built"] = {name: options.get(name) for name in NOT_BUILT}
        return lambda prompt: self.request(prompt, **chosen)

    def call(self, name: str, request: LlmRequest, version: str | int | None) -> StepCall:
        """
        Make the step of one call.

        :param name: the step's name.
        :param request: the call.
        :param version: changes the fingerprint.
        """
        parts = zip_longest(PART_NAMES, request.fingerprint_parts(), fillvalue=OUTPUT_TYPE)
        printed = print_parts([("kind", "llm"), *parts, ("version", version)], secrets=self._session.secrets)
        return StepCall(
            kind="llm",
            name=name,
            fingerprint=printed.digest,
            printed=printed,
            run=lambda: self._ask(name, request),
            as_type=request.output_type,
        )

    def _ask(self, name: str, request: LlmRequest) -> Ran:
        session = self._session
        try:
            answer = author(
                call_with_retries,
                self._caller(),
                request,
                clock=session.services.clock,
                stop=lambda: session.gate.signal is not None,
            )
        except ModelOutputError as error:
            # It was billed all the same.
            if error.usage is not None:
                session.journal.wasted(name, error.usage)
            raise
        return Ran(answer.value, answer.usage)

    def _caller(self) -> ModelCaller:
        models = self._session.services.models
        if models is None:
            raise AiflowConfigError("no models here: install airflow-aiflow[llm] and set a connection of common-ai")
        return models()
