"""Where callbacks may go, and how they are signed."""

from __future__ import annotations

from uuid import UUID

import pytest

from airflow_aiflow.durable.callback import CallbackRules, CallbackTarget, is_public, sign
from airflow_aiflow.exceptions import SubmissionRefusedError

RULES = CallbackRules(("hooks.example.com", "*.example.org", "other.example.net:8443"), b"s" * 32)
ID = UUID("01930000-0000-7000-8000-000000000000")


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://hooks.example.com", ("hooks.example.com", 443, "/")),
        ("HTTPS://Hooks.Example.Com/a/b?c=d", ("hooks.example.com", 443, "/a/b?c=d")),
        ("https://hooks.example.com.:443/a", ("hooks.example.com", 443, "/a")),
        ("https://a.b.example.org/x", ("a.b.example.org", 443, "/x")),
        ("https://other.example.net:8443/x", ("other.example.net", 8443, "/x")),
    ],
)
def test_what_is_listed_may_be_called(url: str, target: tuple[str, int, str]) -> None:
    assert RULES.target(url) == CallbackTarget(*target)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://hooks.example.com/",
        "//hooks.example.com/",
        "https://hooks.example.com:8443/",
        "https://other.example.net/",
        "https://example.org/",
        "https://evilexample.org/",
        "https://hooks.example.com.evil.net/",
        "https://evil.net/hooks.example.com",
        "https://user@hooks.example.com/",
        "https://hooks.example.com@evil.net/",
        "https://hooks.example.com/#part",
        "https://hooks.example.com\\@evil.net/",
        "https://hooks.example.com\n.evil.net/",
        "https://hooks.example.com/\r\nX: y",
        "https://hooks.example.com/ä",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://localhost/",
        "https://hooks.example.com:99999/",
        "https://hooks.example.com:x/",
        "https://hooks.example.com/" + "x" * 2000,
    ],
)
def test_anything_else_may_not(url: str) -> None:
    with pytest.raises(SubmissionRefusedError) as refused:
        RULES.target(url)
    assert refused.value.pointer == "/callback_url"


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("240.0.0.1", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:169.254.169.254", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b:1::a00:1", False),
        ("2002:7f00:1::", False),
        ("2001:0:7f00:1::", False),
        ("192.0.0.9", False),
        ("192.0.0.192", False),
        ("192.88.99.1", False),
        ("::ffff:192.88.99.1", False),
        ("fec0::1", False),
        ("somewhere", False),
    ],
)
def test_nothing_inside_is_a_public_address(address: str, public: bool) -> None:
    assert is_public(address) is public


def test_a_signature_is_over_time_id_and_body() -> None:
    signature = RULES.signature(ID, 1_764_500_000, b"{}")
    assert signature == f"t=1764500000,v1={sign(b's' * 32, ID, 1_764_500_000, b'{}')}"
    others = {
        RULES.signature(ID, 1_764_500_001, b"{}").partition(",")[2],
        RULES.signature(UUID(int=1), 1_764_500_000, b"{}").partition(",")[2],
        RULES.signature(ID, 1_764_500_000, b"{ }").partition(",")[2],
        CallbackRules((), b"t" * 32).signature(ID, 1_764_500_000, b"{}").partition(",")[2],
    }
    assert len(others | {signature.partition(",")[2]}) == 5
