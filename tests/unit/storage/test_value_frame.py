"""Stored values: every byte back, or said to be damaged."""

from __future__ import annotations

import hashlib
import random

import pytest
import zstandard

from airflow_aiflow.storage.value_frame import FrameError, pack, unpack

VALUE = b'{"text":"the same again and again"}' * 400


def test_it_comes_back_smaller() -> None:
    sha256, frame = pack(VALUE)
    assert sha256 == hashlib.sha256(VALUE).digest()
    assert len(frame) < len(VALUE) / 10
    assert unpack(sha256, frame) == VALUE


def test_every_cut_is_damage() -> None:
    sha256, frame = pack(VALUE)
    for length in range(len(frame)):
        with pytest.raises(FrameError, match=f"cut at {length} bytes"):
            unpack(sha256, frame[:length])
    sha256, frame = pack(b"")
    with pytest.raises(FrameError, match="cut"):
        unpack(sha256, frame[:-1])


def test_every_flipped_bit_is_damage_or_harmless() -> None:
    value = random.Random(7).randbytes(200)
    sha256, frame = pack(value)
    for position in range(len(frame) * 8):
        flipped = bytearray(frame)
        flipped[position // 8] ^= 1 << position % 8
        try:
            found = unpack(sha256, bytes(flipped))
        except FrameError:
            continue
        assert found == value


@pytest.mark.parametrize("tail", [b"x", b"\x00" * 100, pack(b"second")[1]])
def test_something_behind_the_frame_is_damage(tail: bytes) -> None:
    sha256, frame = pack(VALUE)
    with pytest.raises(FrameError, match="behind it"):
        unpack(sha256, frame + tail)


def test_other_bytes_are_damage() -> None:
    with pytest.raises(FrameError, match="whose SHA-256 is"):
        unpack(hashlib.sha256(VALUE).digest(), pack(b"another value")[1])


def test_a_size_that_a_header_claims_is_not_allocated() -> None:
    parameters = zstandard.ZstdCompressionParameters(write_content_size=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj(size=1 << 62)
    frame = compressor.compress(b"x")
    frame += compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    assert zstandard.get_frame_parameters(frame).content_size == 1 << 62
    with pytest.raises(FrameError):
        unpack(hashlib.sha256(b"x").digest(), frame)
