"""Real clients against targets that refuse, cut, stay silent and answer: what each raises is judged rightly."""

from __future__ import annotations

import asyncio
import io
import smtplib
import urllib.error
import urllib.request
from collections.abc import Callable
from email.utils import formatdate
from time import time
from typing import Any

import aiohttp
import httpx
import httpx2
import minio
import openai
import psycopg
import psycopg_pool
import pytest
import requests
import tenacity
import urllib3

from airflow_aiflow.durable.classify import Classified, classify
from tests.integration.durable.targets import (
    answering,
    cut,
    free_port,
    mail_server,
    never_accepting,
    read_request,
    reset,
    silent,
    stop,
    target,
)

#: Seconds after which a client gives up: what is measured happens at once, or never.
SOON = 0.4


def by_requests(url: str) -> Any:
    response = requests.post(url, data="x", timeout=SOON)
    response.raise_for_status()
    return response.json()


def by_httpx(url: str) -> Any:
    response = httpx.post(url, content="x", timeout=SOON, follow_redirects=True)
    response.raise_for_status()
    return response.json()


def by_httpx2(url: str) -> Any:
    response = httpx2.post(url, content="x", timeout=SOON, follow_redirects=True)
    response.raise_for_status()
    return response.json()


def by_async_httpx(url: str) -> Any:
    async def post() -> Any:
        async with httpx.AsyncClient(timeout=SOON, follow_redirects=True) as client:
            response = await client.post(url, content="x")
            response.raise_for_status()
            return response.json()

    return asyncio.run(post())


def by_urllib(url: str) -> Any:
    with urllib.request.urlopen(url, data=b"x", timeout=SOON) as response:
        return response.read()


def by_aiohttp(url: str) -> Any:
    timeout = aiohttp.ClientTimeout(sock_connect=SOON, sock_read=SOON)

    async def post() -> Any:
        session = aiohttp.ClientSession(timeout=timeout, raise_for_status=True)
        async with session, session.post(url, data="x") as response:
            return await response.json()

    return asyncio.run(post())


def by_urllib3(url: str) -> Any:
    return urllib3.PoolManager().request("POST", url, body="x", timeout=SOON, retries=False).json()


def by_retrying_urllib3(url: str) -> Any:
    return urllib3.PoolManager().request("POST", url, body="x", timeout=SOON).json()


def by_openai(url: str) -> Any:
    client = openai.OpenAI(api_key="x", base_url=url, timeout=SOON, max_retries=0)
    return client.chat.completions.create(model="m", messages=[]).choices[0]


def by_pydantic_ai(url: str) -> Any:
    from pydantic_ai.direct import model_request_sync
    from pydantic_ai.messages import ModelRequest
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = openai.AsyncOpenAI(api_key="x", base_url=url, timeout=SOON, max_retries=0)
    model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))
    return model_request_sync(model, [ModelRequest.user_text_prompt("x")])


#: Clients that raise for an answer of 400 and more.
RAISING = [by_requests, by_httpx, by_httpx2, by_async_httpx, by_urllib, by_aiohttp, by_openai, by_pydantic_ai]
CLIENTS = [*RAISING, by_urllib3, by_retrying_urllib3]


def judged(call: Callable[[str], Any], url: str) -> Classified:
    """Call, and judge what is raised."""
    try:
        call(url)
    except Exception as error:
        verdict = classify(error)
        print(f"{call.__name__}: {type(error).__name__}: {verdict}")
        return verdict
    raise AssertionError("nothing was raised")


def local(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1"


@pytest.mark.parametrize("call", CLIENTS)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_refused_connection_is_not_applied(call: Callable[[str], Any], host: str) -> None:
    assert judged(call, f"http://{host}:{free_port()}/v1").kind == "not_applied"


@pytest.mark.parametrize("call", CLIENTS)
def test_a_name_that_does_not_resolve_is_not_applied(call: Callable[[str], Any]) -> None:
    assert judged(call, "http://nohost.invalid/v1").kind == "not_applied"


@pytest.mark.parametrize("call", [one for one in CLIENTS if one is not by_urllib])
def test_a_connection_that_is_never_made_is_not_applied(call: Callable[[str], Any]) -> None:
    with never_accepting() as port:
        assert judged(call, local(port)).kind == "not_applied"


@pytest.mark.parametrize("call", CLIENTS)
@pytest.mark.parametrize("answer", [cut, reset, silent, answering(200, '{"half": ', size=1000)])
def test_what_comes_after_the_request_was_taken_is_unknown(call: Callable[[str], Any], answer: Any) -> None:
    with target(answer) as port:
        assert judged(call, local(port)).kind == "unknown"


@pytest.mark.parametrize("call", [one for one in CLIENTS if one is not by_urllib])
def test_an_answer_that_can_not_be_read_is_unknown(call: Callable[[str], Any]) -> None:
    with target(answering(200, "no json")) as port:
        assert judged(call, local(port)).kind == "unknown"


@pytest.mark.parametrize("call", RAISING)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 422, 451])
def test_an_answer_that_refuses_is_not_applied(call: Callable[[str], Any], status: int) -> None:
    with target(answering(status)) as port:
        assert judged(call, local(port)).kind == "not_applied"


@pytest.mark.parametrize("call", RAISING)
@pytest.mark.parametrize("status", [408, 409, 425, 500, 502, 503, 504])
def test_an_answer_that_leaves_it_open_is_unknown(call: Callable[[str], Any], status: int) -> None:
    with target(answering(status)) as port:
        assert judged(call, local(port)).kind == "unknown"


@pytest.mark.parametrize("call", RAISING)
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7), ("-3", 0), ("99999999", 3600), (None, None), ("soon", None)], ids=str
)
def test_too_many_requests_are_rejected_for_now(
    call: Callable[[str], Any], status: int, header: str | None, seconds: float | None
) -> None:
    headers: dict[str, Any] = {} if header is None else {"retry_after": header}
    with target(answering(status, **headers)) as port:
        verdict = judged(call, local(port))
    told = status == 429 or seconds is not None
    assert (verdict.kind, verdict.retry_after) == ("rejected" if told else "unknown", seconds)


@pytest.mark.parametrize("call", RAISING)
def test_a_date_counts_against_the_targets_own_clock(call: Callable[[str], Any]) -> None:
    wrong = time() + 86_400
    headers: dict[str, Any] = {
        "date": formatdate(wrong, usegmt=True),
        "retry_after": formatdate(wrong + 90, usegmt=True),
    }
    with target(answering(503, **headers)) as port:
        verdict = judged(call, local(port))
    assert (verdict.kind, verdict.retry_after) == ("rejected", 90.0)


# --- requests that hide behind the last one ---------------------------------------------------------------------------


@pytest.mark.parametrize("status", [302, 303, 307])
@pytest.mark.parametrize(
    "call", [by_requests, by_httpx, by_httpx2, by_async_httpx, by_urllib, by_retrying_urllib3, by_aiohttp]
)
def test_a_refusal_behind_a_redirect_is_unknown(call: Callable[[str], Any], status: int) -> None:
    with target(answering(status, location=f"http://127.0.0.1:{free_port()}/next")) as port:
        assert judged(call, local(port)).kind == "unknown"


@pytest.mark.parametrize("call", [by_requests, by_httpx, by_httpx2, by_async_httpx, by_aiohttp])
def test_an_answer_behind_a_redirect_is_unknown(call: Callable[[str], Any]) -> None:
    with target(answering(404)) as gone, target(answering(303, location=f"http://127.0.0.1:{gone}/next")) as port:
        assert judged(call, local(port)).kind == "unknown"


def test_a_client_that_tried_before_is_believed_only_if_all_tries_were_refused() -> None:
    def put(url: str) -> Any:
        return urllib3.PoolManager().request("PUT", url, body="x", timeout=SOON)

    with target(cut, stop) as port:
        assert judged(put, local(port)).kind == "unknown"
    assert judged(put, local(free_port())).kind == "not_applied"


@pytest.mark.parametrize("options", [{"reraise": True}, {}], ids=["reraise", "wrapped"])
def test_an_authors_own_retries_hide_what_came_first(options: dict[str, Any]) -> None:
    retrying = tenacity.retry(stop=tenacity.stop_after_attempt(2), **options)(by_httpx)
    with target(cut, stop) as port:
        assert judged(retrying, local(port)).kind == "unknown"


def retrying_requests(url: str) -> Any:
    session = requests.Session()
    retries = urllib3.Retry(total=2, allowed_methods=None, status_forcelist=[500], backoff_factor=0)
    session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retries))
    response = session.post(url, data="x", timeout=SOON)
    response.raise_for_status()
    return response


@pytest.mark.parametrize("client", ["requests", "minio"])
@pytest.mark.parametrize("first", [cut, answering(500), silent])
def test_a_refusal_after_a_try_that_may_have_been_applied_is_unknown(client: str, first: Any) -> None:
    """A conditional put that is sent again meets what its own first try has done: 412."""
    with target(first, s3_answering(412, "PreconditionFailed")) as port:
        call = retrying_requests if client == "requests" else by_minio
        assert judged(call, local(port)).kind == "unknown"


# --- the minio SDK ----------------------------------------------------------------------------------------------------


def s3_answering(status: int, code: str, **headers: Any) -> Any:
    words = f"<Code>{code}</Code><Message>m</Message><Resource>/b</Resource><RequestId>1</RequestId><HostId>1</HostId>"
    return answering(status, f'<?xml version="1.0"?><Error>{words}</Error>', Content_Type="application/xml", **headers)


def by_minio(url: str, *, retries: Any = None) -> Any:
    retries = urllib3.Retry(total=2, status_forcelist=[500], backoff_factor=0) if retries is None else retries
    http = urllib3.PoolManager(timeout=SOON, retries=retries)
    host = url.removeprefix("http://").partition("/")[0]
    client = minio.Minio(host, "access", "secret-key", secure=False, region="us-east-1", http_client=http)
    return client.put_object("bucket", "key", io.BytesIO(b"x"), 1)


def by_minio_at_once(url: str) -> Any:
    return by_minio(url, retries=False)


MINIO = [by_minio, by_minio_at_once]


@pytest.mark.parametrize("call", MINIO)
@pytest.mark.parametrize(
    ("status", "code"), [(403, "AccessDenied"), (404, "NoSuchBucket"), (412, "PreconditionFailed")]
)
def test_an_s3_server_that_refuses(call: Callable[[str], Any], status: int, code: str) -> None:
    with target(s3_answering(status, code)) as port:
        assert judged(call, local(port)).kind == "not_applied"


@pytest.mark.parametrize("call", MINIO)
@pytest.mark.parametrize(
    "answer", [cut, reset, silent, s3_answering(409, "Conflict"), s3_answering(500, "InternalError")]
)
def test_an_s3_server_that_leaves_it_open(call: Callable[[str], Any], answer: Any) -> None:
    with target(answer) as port:
        assert judged(call, local(port)).kind == "unknown"


def test_an_s3_server_that_is_too_busy() -> None:
    with target(s3_answering(503, "SlowDown", Retry_After="7")) as port:
        found = judged(by_minio_at_once, local(port))
    assert (found.kind, found.retry_after) == ("rejected", 7)
    with target(s3_answering(429, "SlowDown", Retry_After="0"), s3_answering(403, "AccessDenied")) as port:
        assert judged(by_minio, local(port)).kind == "not_applied"


@pytest.mark.parametrize("call", MINIO)
def test_an_s3_server_that_is_away(call: Callable[[str], Any]) -> None:
    assert judged(call, local(free_port())).kind == "not_applied"


def test_openais_own_retries_hide_what_came_first() -> None:
    def chat(url: str) -> Any:
        client = openai.OpenAI(api_key="x", base_url=url, timeout=SOON, max_retries=1)
        return client.chat.completions.create(model="m", messages=[])

    with target(cut, stop) as port:
        assert judged(chat, local(port)).kind == "unknown"


def test_a_second_target_tried_while_the_first_ones_failure_was_handled() -> None:
    def either_way(url: str) -> Any:
        try:
            return by_httpx(url)
        except httpx.HTTPError:
            return by_requests(local(free_port()))

    with target(cut) as port:
        assert judged(either_way, local(port)).kind == "unknown"
    assert judged(either_way, local(free_port())).kind == "not_applied"

    def other_way_round(url: str) -> Any:
        try:
            return by_requests(local(free_port()))
        except requests.RequestException:
            return by_httpx(url)

    with target(cut) as port:
        assert judged(other_way_round, local(port)).kind == "unknown"


def test_what_was_handled_before_the_call_is_none_of_its_business() -> None:
    def fails() -> Exception:
        try:
            by_httpx(local(free_port()))
        except httpx.HTTPError as error:
            return error
        raise AssertionError

    outside = TimeoutError("of something else")
    try:
        raise outside
    except TimeoutError:
        inside = fails()
    assert classify(inside).kind == "unknown"
    assert classify(inside, handling=outside).kind == "not_applied"


# --- Airflow's own hook -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "kind"), [(answering(404), "not_applied"), (answering(500), "unknown"), (cut, "unknown")]
)
def test_airflows_http_hook(answer: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.http.hooks.http import HttpHook

    def run(url: str) -> Any:
        monkeypatch.setenv("AIRFLOW_CONN_CRM", url)
        return HttpHook(method="POST", http_conn_id="crm").run("/v1", data="x")

    with target(answer) as port:
        assert judged(run, f"http://127.0.0.1:{port}").kind == kind


def test_airflows_http_hook_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.http.hooks.http import HttpHook

    monkeypatch.setenv("AIRFLOW_CONN_CRM", f"http://127.0.0.1:{free_port()}")
    assert judged(lambda url: HttpHook(method="POST", http_conn_id="crm").run(url), "/v1").kind == "not_applied"


# --- mail -------------------------------------------------------------------------------------------------------------


def send_mail(port: int) -> None:
    with smtplib.SMTP("127.0.0.1", port, timeout=SOON) as smtp:
        smtp.login("a", "b")
        smtp.sendmail("a@example.com", ["b@example.com"], "Subject: x\r\n\r\nx")


@pytest.mark.parametrize(
    ("replies", "kind"),
    [
        ({"greeting": "554 go away"}, "not_applied"),
        ({"greeting": "421 too busy"}, "not_applied"),
        ({"ehlo": "502 no", "helo": "502 no"}, "not_applied"),
        ({"auth": "535 wrong password"}, "not_applied"),
        ({"mail": "550 you may not"}, "not_applied"),
        ({"rcpt": "550 nobody"}, "not_applied"),
        ({"data": "451 later"}, "not_applied"),
        ({"body": "552 too large"}, "not_applied"),
        ({"body": "451 later"}, "not_applied"),
        ({"body": "421 closing"}, "unknown"),
        ({"body": "cut"}, "unknown"),
        ({"data": "cut"}, "unknown"),
        ({"mail": "cut"}, "unknown"),
    ],
    ids=str,
)
def test_mail(replies: dict[str, str], kind: str) -> None:
    def send(port: str) -> Any:
        send_mail(int(port))

    with target(mail_server(**replies)) as port:
        assert judged(send, str(port)).kind == kind


def test_mail_to_a_refused_port() -> None:
    assert judged(lambda port: send_mail(int(port)), str(free_port())).kind == "not_applied"


def test_mail_goes_through() -> None:
    with target(mail_server()) as port:
        send_mail(port)


# --- databases --------------------------------------------------------------------------------------------------------


def connect(where: str) -> Any:
    return psycopg.connect(f"{where} dbname=x connect_timeout=2")


def test_a_database_without_a_connection_is_not_applied() -> None:
    port = free_port()
    assert judged(connect, f"host=127.0.0.1 port={port}").kind == "not_applied"
    assert judged(connect, f"host=127.0.0.1,localhost port={port}").kind == "not_applied"
    assert judged(connect, f"host=nohost.invalid port={port}").kind == "not_applied"
    with target(lambda connection: connection.close()) as closing:
        assert judged(connect, f"host=127.0.0.1 port={closing}").kind == "not_applied"
    with target(lambda connection: None) as idle:
        assert judged(connect, f"host=127.0.0.1 port={idle}").kind == "not_applied"


def test_a_pool_without_a_connection_is_not_applied() -> None:
    where = f"host=127.0.0.1 port={free_port()} dbname=x"
    with psycopg_pool.ConnectionPool(where, min_size=0, max_size=1, open=True) as pool:

        def ask(url: str) -> Any:
            with pool.connection(timeout=0.1) as connection:
                connection.execute("select 1")

        assert judged(ask, "").kind == "not_applied"


def test_a_database_that_goes_away_is_unknown() -> None:
    """Speak just enough of PostgreSQL's protocol to be asked, then hang up."""

    def answer(connection: Any) -> None:
        connection.recv(65536)
        connection.sendall(b"R\x00\x00\x00\x08\x00\x00\x00\x00" + b"Z\x00\x00\x00\x05I")
        connection.recv(65536)
        connection.close()

    def ask(port: str) -> Any:
        settings = "user=x password=x sslmode=disable gssencmode=disable channel_binding=disable"
        with psycopg.connect(f"host=127.0.0.1 port={port} dbname=x {settings}", autocommit=True) as connection:
            connection.execute("insert into t values (1)")

    with target(answer) as port:
        verdict = judged(ask, str(port))
    assert verdict.kind == "unknown"
    assert "OperationalError" in verdict.why


def test_the_targets_are_what_they_say() -> None:
    seen: list[bytes] = []

    def answer(connection: Any) -> None:
        seen.append(read_request(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with target(answer) as port:
        assert by_requests(local(port)) == {}
    assert seen[0].endswith(b"\r\n\r\nx")
    with pytest.raises(urllib.error.HTTPError), target(answering(404)) as port:
        by_urllib(local(port))
