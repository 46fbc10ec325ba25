"""
Encrypt payloads at rest: what the deployment's keys lock is opened by the same keys alone.

Fernet (AES-128-CBC with an HMAC) of the library that Airflow itself uses for its connections, with its rotation: the
first key encrypts, all of them decrypt. A value is compressed before, for nothing compresses it after. An envelope
begins with a byte that no encoded value begins with, so rows from before the keys were set stay readable.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_aiflow.exceptions import AiflowConfigError, PayloadDecodeError

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

#: Begins an envelope; an encoded value is JSON, which never begins with a control character.
MAGIC = b"\x01aiflow-e1"

#: Bytes of a key's id: enough to name a key in a message, too few to say anything about it.
KEY_ID_BYTES = 4

#: Decompressed at most, in bytes: what our own codec refuses to encode is larger.
LARGEST = 2 * 1024**3


def check_keys(keys: Sequence[bytes]) -> None:
    """
    Refuse what is no Fernet key, without showing it.

    :param keys: as configured.
    :raises AiflowConfigError: naming the place of the wrong one.
    """
    for place, key in enumerate(keys, start=1):
        try:
            raw = base64.urlsafe_b64decode(key)
        except ValueError:
            raw = b""
        if len(raw) != 32:
            raise AiflowConfigError(
                f"[aiflow] payload_keys: key {place} of {len(keys)} is no Fernet key (32 bytes in URL-safe base64). "
                "Make one by: python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())'"
            )


def key_id(key: bytes) -> str:
    """
    Name a key.

    :param key: a Fernet key.
    """
    return hashlib.sha256(b"aiflow payload key " + base64.urlsafe_b64decode(key)).digest()[:KEY_ID_BYTES].hex()


class PayloadCipher:
    """
    Lock and open payloads.

    :param keys: Fernet keys; the first encrypts, all decrypt; none: payloads stay in clear.
    """

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        check_keys(keys)
        self._keys = tuple(keys)

    @property
    def active(self) -> bool:
        """Whether payloads are encrypted."""
        return bool(self._keys)

    @cached_property
    def _boxes(self) -> dict[str, Fernet]:
        from cryptography.fernet import Fernet

        return {key_id(key): Fernet(key) for key in self._keys}

    def lock(self, data: bytes) -> bytes:
        """
        Encrypt an encoded value, where there is a key.

        :param data: the plain bytes.
        """
        if not self._keys:
            return data
        import zstandard

        first = key_id(self._keys[0])
        token = self._boxes[first].encrypt(zstandard.ZstdCompressor(write_content_size=True).compress(data))
        return MAGIC + bytes.fromhex(first) + base64.urlsafe_b64decode(token)

    def open(self, data: bytes, what: str) -> bytes:
        """
        Decrypt what ``lock`` gave; what was written in clear stays as it is.

        :param data: as stored.
        :param what: names it in messages.
        :raises PayloadDecodeError: if its key is not configured here, or it was damaged.
        """
        if not data.startswith(MAGIC):
            return data
        import zstandard
        from cryptography.fernet import InvalidToken

        name = data[len(MAGIC) : len(MAGIC) + KEY_ID_BYTES].hex()
        box = self._boxes.get(name)
        if box is None:
            raise PayloadDecodeError(
                f"{what} is encrypted with the key {name}, which is not among [aiflow] payload_keys here "
                f"({', '.join(self._boxes) or 'none is set'}). Add that key behind the first one; nothing is lost"
            )
        try:
            plain = box.decrypt(base64.urlsafe_b64encode(data[len(MAGIC) + KEY_ID_BYTES :]))
            return zstandard.ZstdDecompressor().decompress(plain, max_output_size=LARGEST)
        except (InvalidToken, zstandard.ZstdError) as error:
            raise PayloadDecodeError(f"{what} was damaged or edited: its key {name} does not open it") from error
