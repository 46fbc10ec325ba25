"""A name that people, mails and models give, as the name of a download."""

from __future__ import annotations

from email.message import Message

import pytest

from airflow_aiflow.storage.content_disposition import content_disposition, file_name

DIGEST = "ab" * 32


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report.html", "report.html"),
        ("a/b", "b"),
        ("a\\b", "b"),
        ("../../x", "x"),
        ("C:\\dir\\x.txt", "x.txt"),
        ("a%2Fb", "a%2Fb"),
        ("ü €.txt", "ü €.txt"),
        ('quo"ted', "quo_ted"),
        ("line\r\nSet-Cookie: a=b", "line__Set-Cookie_ a=b"),
        ("nul\u0000", "nul_"),
        ("exe\u202efdp", "exe_fdp"),
        ("\ud800", "_"),
        (".", f"artifact-{DIGEST[:12]}"),
        ("..", f"artifact-{DIGEST[:12]}"),
        ("dir/", f"artifact-{DIGEST[:12]}"),
        ("", f"artifact-{DIGEST[:12]}"),
        (None, f"artifact-{DIGEST[:12]}"),
        ("x" * 300 + ".pdf", "x" * 176 + ".pdf"),
        ("x" * 300, "x" * 180),
    ],
)
def test_a_file_name_is_one_file_s_name(name: str | None, safe: str) -> None:
    assert file_name(name, DIGEST) == safe


@pytest.mark.parametrize("name", ["report.html", "a;b=\"c\" 'd'", "ü €\n.txt", "%41%2F", "\ud800x", None])
def test_the_header_is_ascii_and_says_the_exact_name(name: str | None) -> None:
    header = content_disposition(name, DIGEST, "text/plain")
    assert header.isascii()
    assert header.isprintable()
    message = Message()
    message["Content-Disposition"] = header.replace("filename=", "plain=")
    assert message.get_filename() == file_name(name, DIGEST)


@pytest.mark.parametrize(
    ("media_type", "shown"),
    [
        ("text/plain; charset=utf-8", "inline"),
        ("image/png", "inline"),
        ("application/pdf", "inline"),
        ("text/html", "attachment"),
        ("image/svg+xml", "attachment"),
        ("application/xhtml+xml", "attachment"),
        (None, "attachment"),
    ],
)
def test_only_what_runs_nothing_is_shown_in_the_browser(media_type: str | None, shown: str) -> None:
    assert content_disposition("x", DIGEST, media_type).startswith(f"{shown};")
