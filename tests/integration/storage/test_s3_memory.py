"""A large artifact moves in little memory, both ways: by the kernel's high-water mark of a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_aiflow.local.objectstore import ObjectStoreServer
from tests.artifact_world import S3ArtifactWorld

MIB = 1 << 20
#: What a 2 GiB artifact may take beyond the process as it was before; what it takes does not depend on the size.
LIMIT = 64 * MIB
SIZE = int(os.environ.get("AIFLOW_TEST_ARTIFACT_MIB", "256")) * MIB

#: Moves ``size`` bytes that are made on the fly, and prints the memory taken beyond that of a small artifact.
MOVER = """
import hashlib, io, json, os, random, sys
from airflow_aiflow.storage.s3 import S3ArtifactStore
from airflow_aiflow.storage.s3_settings import S3Settings

kind, size, settings, folder = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4]
store = S3ArtifactStore(S3Settings(**settings), temp_dir=folder)

class Made(io.RawIOBase):
    def __init__(self, seed):
        self.block, self.left, self.count = random.Random(seed).randbytes(1 << 20), size, 0
    def readable(self):
        return True
    def readinto(self, buffer):
        piece = (self.count.to_bytes(8, "big") + self.block)[: min(len(buffer), self.left)]
        self.count, self.left = self.count + 1, self.left - len(piece)
        buffer[: len(piece)] = piece
        return len(piece)

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) << 10

def forget():
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")

def drain(stream):
    digest = hashlib.sha256()
    while chunk := stream.read(1 << 20):
        digest.update(chunk)
    return digest.digest()

small, _ = store.put_file(io.BytesIO(b"warm"), media_type="text/plain")
drain(store.open_file(small))
path = os.path.join(folder, "made")
if kind == "file":
    with open(path, "wb") as file:
        stream = Made(1)
        while piece := stream.read(1 << 20):
            file.write(piece)
    source = open(path, "rb")
else:
    source = Made(2)
forget()
before = peak()
address, stored = store.put_file(source, media_type="application/octet-stream")
put = peak() - before
forget()
before = peak()
with store.open_file(address) as stream:
    right = drain(stream) == address
print(json.dumps({"put": put, "get": peak() - before, "stored": stored, "right": right}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's high-water mark of memory")
@pytest.mark.parametrize("kind", ["file", "stream"])
def test_a_large_artifact_moves_in_little_memory(object_store: ObjectStoreServer, tmp_path: Path, kind: str) -> None:
    settings = S3ArtifactWorld(object_store).settings
    fields = ("endpoint", "bucket", "access_key", "secret_key", "prefix", "secure", "region")
    given = json.dumps({name: getattr(settings, name) for name in fields})
    command = [sys.executable, "-c", MOVER, kind, str(SIZE), given, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    took = json.loads(done.stdout)
    print(
        f"{kind}: {SIZE // MIB} MiB put in {took['put'] / MIB:.1f} MiB, read in {took['get'] / MIB:.1f} MiB of memory"
    )
    assert took["stored"] == SIZE
    assert took["right"]
    assert took["put"] < LIMIT
    assert took["get"] < LIMIT
