"""``aiflow spool``: what waits on a host is listed, and an encrypted text can be read by who has its key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from airflow_aiflow.cli.__main__ import main
from airflow_aiflow.runtime.spool import Spool
from airflow_aiflow.storage.payload_cipher import PayloadCipher

KEY = Fernet.generate_key()


def test_an_empty_spool_is_no_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spool", "list", "--dir", str(tmp_path / "none")]) == 0
    assert "nothing waits" in capsys.readouterr().out


@pytest.mark.parametrize("keys", [[], [KEY]], ids=["in clear", "encrypted"])
def test_a_kept_text_is_listed_and_shown(
    keys: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW__AIFLOW__SPOOL_DIR", str(tmp_path))
    monkeypatch.setenv("AIRFLOW__AIFLOW__PAYLOAD_KEYS", ",".join(key.decode() for key in keys))
    path = Spool(tmp_path, cipher=PayloadCipher(keys)).keep_text("assess", "attempt 2\nRisk: 4 of 5 \u2014 high\n")
    assert (b"Risk" in path.read_bytes()) is (not keys)
    assert main(["spool", "list", "--json"]) == 1
    listed = json.loads(capsys.readouterr().out)
    assert [entry["file"] for entry in listed["files"]] == [path.name]
    assert main(["spool", "show", path.name]) == 0
    assert "step 'assess' of attempt 2\nRisk: 4 of 5 \u2014 high" in capsys.readouterr().out


def test_without_its_key_a_text_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Spool(tmp_path, cipher=PayloadCipher([KEY])).keep_text("assess", "Risk")
    assert main(["spool", "show", path.name, "--dir", str(tmp_path)]) == 1
    assert "not among [aiflow] payload_keys" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"), [("../../etc/passwd", "is no kept text"), ("a.kept.txt", "there is no a.kept.txt")]
)
def test_what_is_not_there_is_told(name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spool", "show", name, "--dir", str(tmp_path)]) == 1
    assert message in capsys.readouterr().err
