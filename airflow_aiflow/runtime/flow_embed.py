"""The call of a flow that turns texts into vectors; what does the work is imported where it is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_aiflow.llm.call import DEFAULT_TIMEOUT
from airflow_aiflow.runtime.map_rules import MAX_ITEM_ATTEMPTS

if TYPE_CHECKING:
    from airflow_aiflow.durable.artifact import ArtifactRef
    from airflow_aiflow.durable.policy import Duration
    from airflow_aiflow.llm.embedding import Encoder
    from airflow_aiflow.runtime.model_calls import ModelCalls
    from airflow_aiflow.runtime.session import Session


class EmbedCalls:
    """Be the part of a flow that embeds."""

    _session: Session
    _models: ModelCalls

    def embed(
        self,
        name: str,
        texts: Iterable[str] | ArtifactRef,
        *,
        llm_conn_id: str | None = None,
        model_id: str | None = None,
        batch_size: int = 256,
        encoder: Encoder | None = None,
        max_workers: int = 4,
        on_item_error: str | float = "fail",
        max_item_attempts: int = MAX_ITEM_ATTEMPTS,
        model_settings: Mapping[str, Any] | None = None,
        rate_limit: str | None = None,
        budget: object = None,
        version: str | int | None = None,
        timeout: Duration = DEFAULT_TIMEOUT,
        reuse: Duration | None = None,
    ) -> ArtifactRef:
        """
        Embed texts, many to a call; each text is recorded by itself, and equal ones of the list are one.

        :param name: the step's name.
        :param texts: a list, a generator, or a stored file of JSON lines.
        :param llm_conn_id: a connection of common-ai; ``None``: the deployment's default.
        :param model_id: overrides the connection's model, such as ``openai:text-embedding-3-small``.
        :param batch_size: most texts of a call.
        :param encoder: embeds in this process instead of a connection.
        :param max_workers: calls in flight at once.
        :param on_item_error: ``fail``, ``skip``, or the share of texts that may have no vector: theirs is ``null``.
        :param max_item_attempts: tries of a batch, where texts may fail; then its texts are tried in smaller ones.
        :param model_settings: such as ``dimensions``, in pydantic-ai's names.
        :param rate_limit: the name of a limit that ``aiflow limits set`` made: each call waits for it.
        :param budget: of all calls of the step's name.
        :param version: changes the fingerprint.
        :param timeout: seconds for one call.
        :param reuse: how old a vector may be that another run of the DAG paid for in this task; ``None``: not asked.
        :return: an Arrow file of one column, ``vector``: float32, a row for each text, in order.
        :raises StepInputError: if a text is empty or far too long and none may fail; nothing was sent for it.
        :raises ModelOutputError: if what came are not so many vectors of one width; they are not recorded.
        :raises ItemsFailedError: if more texts have no vector than may, or none has one.
        """
        from airflow_aiflow.runtime.embeddings import Embedding

        model = {"llm_conn_id": llm_conn_id, "model_id": model_id, "model_settings": model_settings, "timeout": timeout}
        paid = {"rate_limit": rate_limit, "budget": budget, "reuse": reuse, "version": version}
        crowd: dict[str, Any] = {"encoder": encoder, "batch_size": batch_size, "max_workers": max_workers}
        crowd |= {"on_item_error": on_item_error, "max_item_attempts": max_item_attempts}
        options: dict[str, Any] = model | paid | crowd
        return Embedding(self._session, self._models, name, **options).over(texts)
