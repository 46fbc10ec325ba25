"""A real SMTP server that keeps every mail it accepts as a file and delivers none.

One mail is one ``.eml`` file, so what was sent is counted by listing a folder. A fault comes into play after the mail's
content has arrived: `cut` and `silent` keep the mail and never confirm it (with ``applied`` false they drop it), which
is the case in which a client can't know; `status` refuses it with a temporary error.

Run as a process of its own: ``python -m airflow_aiflow.local.mail_sink --port ...``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time
import uuid
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session

from airflow_aiflow.local.fault import Fault, FaultPlan
from airflow_aiflow.local.http_wire import WireError
from airflow_aiflow.local.ports import LOOPBACK

#: What mail servers in the field take at most, roughly.
LARGEST_MAIL = 64 << 20
CONFIRMED = "250 kept"


class MailSink:
    """Keep mails in a folder, in the shape that aiosmtpd calls.

    :param folder: where the ``.eml`` files go.
    :param faults: how to misbehave.
    """

    def __init__(self, folder: Path, faults: FaultPlan) -> None:
        self._folder = folder
        self._faults = faults

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's name
        """Take one mail."""
        content = envelope.original_content or b""
        try:
            fault = self._faults.next(content)
        except WireError as error:
            return f"451 {error}"
        if fault is None:
            self._keep(envelope, content)
            return CONFIRMED
        return await self._misbehave(fault, server, envelope, content)

    async def _misbehave(self, fault: Fault, server: SMTP, envelope: Envelope, content: bytes) -> str:
        if not fault.does_nothing:
            self._keep(envelope, content)
        match fault.kind:
            case "status":
                return "451 told to refuse"
            case "delay" | "drip":
                await asyncio.sleep(fault.seconds or 0)
            case "silent":
                await asyncio.Event().wait()
            case "cut" | "truncate" | "no_end":
                _cut(server)
        return CONFIRMED

    def _keep(self, envelope: Envelope, content: bytes) -> None:
        """Write a mail so that a reader sees all of it or nothing."""
        name = f"{time.time_ns()}-{uuid.uuid4().hex[:8]}"
        recipients = ", ".join(envelope.rcpt_tos)
        head = f"X-Envelope-From: {envelope.mail_from}\r\nX-Envelope-To: {recipients}\r\n".encode()
        unfinished = self._folder / f".{name}"
        unfinished.write_bytes(head + content)
        unfinished.rename(self._folder / f"{name}.eml")


def _cut(server: SMTP) -> None:
    if isinstance(server.transport, asyncio.WriteTransport):
        server.transport.abort()


async def serve(sink: MailSink, port: int) -> None:
    """Serve on the loopback address until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    server = await loop.create_server(
        lambda: SMTP(sink, hostname="localhost", data_size_limit=LARGEST_MAIL, loop=loop), LOOPBACK, port
    )
    print(f"serving on {LOOPBACK}:{port}", flush=True)
    await stopped.wait()
    server.close()


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description="SMTP server that keeps mails as files")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--control-file", type=Path, required=True)
    options = parser.parse_args()
    os.umask(0o077)
    options.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(serve(MailSink(options.folder, FaultPlan(options.control_file)), options.port))


if __name__ == "__main__":
    main()
