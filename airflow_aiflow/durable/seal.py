"""
Seal a recorded row, so that one which was edited or copied by hand is refused by name.

With a key the seal is an HMAC: whoever can write rows can't forge one. Without a key it is a plain hash, which finds
accidents (a row copied to another execution, a result edited in place) and no attacker.

Everything sealed must be in the row or known from its place, so that the seal can be checked from the row alone.
"""

from __future__ import annotations

import hashlib
import hmac

from airflow_aiflow.exceptions import SealError

#: Begins every seal's message; a change of what is sealed, or how, takes another one.
_FORM = b"aiflow seal 1"
#: Goes before each hash in a seal's message.
_LENGTH = (32).to_bytes(8, "big")


def seal(
    *,
    key: bytes | None,
    execution: str,
    generation: int,
    step_key: bytes,
    request_fingerprint: bytes,
    result_hash: bytes,
    recorded_at: int | None = None,
) -> bytes:
    """
    Compute the seal of a row.

    :param key: the deployment's seal key; ``None`` or empty: none is configured.
    :param execution: which execution the row belongs to.
    :param generation: which generation of it.
    :param step_key: where in the generation.
    :param request_fingerprint: what the result answers.
    :param result_hash: SHA-256 of the stored result's plain bytes.
    :param recorded_at: microseconds since 1970, UTC, as the row keeps them; ``None`` where it keeps no time.
    :return: 32 bytes.
    """
    parts = (
        execution.encode("utf-8", "surrogatepass"),
        b"%d" % generation,
        step_key,
        request_fingerprint,
        result_hash,
        b"" if recorded_at is None else b"%d" % recorded_at,
    )
    # Each part goes with its length, so that nothing can move from one part into its neighbour unseen.
    message = _FORM + b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.digest(key, message, "sha256") if key else hashlib.sha256(message).digest()


#: Lengths of a moment in digits, as they are sealed.
_LENGTHS = tuple(length.to_bytes(8, "big") for length in range(32))


class Seals:
    """
    Seal many rows of one generation: what is the same in all is written once. The seals are those of ``seal``.

    :param key: the deployment's seal key; ``None`` or empty: none is configured.
    :param execution: which execution the rows belong to.
    :param generation: which generation of it.
    """

    __slots__ = ("_head", "_key")

    def __init__(self, key: bytes | None, execution: str, generation: int) -> None:
        parts = (execution.encode("utf-8", "surrogatepass"), b"%d" % generation)
        self._key = key
        self._head = _FORM + b"".join(len(part).to_bytes(8, "big") + part for part in parts) + _LENGTH

    def of(self, step_key: bytes, request_fingerprint: bytes, result_hash: bytes, recorded_at: int) -> bytes:
        """
        Compute the seal of one row; its parts are those of ``seal``.

        :return: 32 bytes.
        """
        at = b"%d" % recorded_at
        message = b"%b%b%b%b%b%b%b%b" % (
            self._head,
            step_key,
            _LENGTH,
            request_fingerprint,
            _LENGTH,
            result_hash,
            _LENGTHS[len(at)],
            at,
        )
        return hmac.digest(self._key, message, "sha256") if self._key else hashlib.sha256(message).digest()


def verify(
    sealed: bytes,
    *,
    key: bytes | None,
    execution: str,
    generation: int,
    step_key: bytes,
    request_fingerprint: bytes,
    result_hash: bytes,
    recorded_at: int | None = None,
    step: str | None = None,
) -> None:
    """
    Check a row against its seal. The other parameters are those of ``seal``.

    :param sealed: the seal that the row carries.
    :param step: the step's or effect's name, for the message.
    :raises SealError: if they do not belong together.
    """

    def expected(by: bytes | None) -> bytes:
        return seal(
            key=by,
            execution=execution,
            generation=generation,
            step_key=step_key,
            request_fingerprint=request_fingerprint,
            result_hash=result_hash,
            recorded_at=recorded_at,
        )

    if hmac.compare_digest(expected(key), sealed):
        return
    what = f"the record of step {step!r}" if step is not None else f"the record with step key {step_key.hex()[:12]}"
    where = f"{what} (execution {execution}, generation {generation})"
    if key and hmac.compare_digest(expected(None), sealed):
        raise SealError(
            f"{where} was sealed without a key, and seal_key is set now. If it was recorded before the key was set, "
            "take seal_key out until its run has ended, or clear the task with on_clear='fresh' to compute it again"
        )
    raise SealError(
        f"{where} does not carry the seal of its content: it was edited or copied by hand, or sealed with another "
        "seal_key. Restore the row or the key, or clear the task with on_clear='fresh' to compute it again"
    )
