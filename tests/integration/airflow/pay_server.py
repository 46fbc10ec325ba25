"""
The payment service of the job ``c_invoices``, reached as the job reaches it: by TLS, under its own name.

Clients of ``httpx`` find it by two variables that any company's network sets: a proxy for https, and a file of trusted
certificates. So no line of the job and no function of a library is replaced.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAME = "pay.example"


class PayServer:
    """
    Keep payouts by idempotency key.

    :param folder: where its certificate goes.
    """

    def __init__(self, folder: Path) -> None:
        self.payouts: list[dict[str, Any]] = []
        self.posts = 0
        #: How many answers to lose from now on, after the payout was made.
        self.lose = 0
        self.certificate = folder / "pay.pem"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*_certificate(self.certificate, folder / "pay.key"))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._proxy = socket.create_server(("127.0.0.1", 0))
        self.proxy = f"http://127.0.0.1:{self._proxy.getsockname()[1]}"
        for target in (self._server.serve_forever, self._accept):
            threading.Thread(target=target, daemon=True).start()

    def pay(self, key: str, body: dict[str, Any]) -> dict[str, Any]:
        """Make a payout, once for a key."""
        self.posts += 1
        found = self.find(key)
        if found:
            return found[0]
        self.payouts.append({"id": f"po_{len(self.payouts) + 1}", "key": key, **body})
        return self.payouts[-1]

    def find(self, key: str) -> list[dict[str, Any]]:
        """Give the payouts of a key."""
        return [payout for payout in self.payouts if payout["key"] == key]

    def close(self) -> None:
        """Stop listening."""
        self._proxy.close()
        self._server.shutdown()
        self._server.server_close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._proxy.accept()
            except OSError:
                return
            threading.Thread(target=self._tunnel, args=(client,), daemon=True).start()

    def _tunnel(self, client: socket.socket) -> None:
        """Answer CONNECT for our name alone, then pass bytes both ways."""
        request = b""
        while b"\r\n\r\n" not in request:
            request += client.recv(4096)
        if not request.startswith(f"CONNECT {NAME}:443 ".encode()):
            client.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            client.close()
            return
        server = socket.create_connection(("127.0.0.1", self._server.server_port))
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        threading.Thread(target=_pass_on, args=(server, client), daemon=True).start()
        _pass_on(client, server)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def _handler(service: PayServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            made = service.pay(self.headers["Idempotency-Key"], body)
            if service.lose > 0:
                service.lose -= 1
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self._answer(made)

        def do_GET(self) -> None:
            self._answer(service.find(parse_qs(urlsplit(self.path).query)["key"][0]))

        def _answer(self, value: Any) -> None:
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def _certificate(certificate: Path, key_file: Path) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key_file.touch(mode=0o600)
    key_file.write_bytes(private)
    return str(certificate), str(key_file)


@contextmanager
def pay_server(folder: Path) -> Iterator[PayServer]:
    """Run the service for the length of a block."""
    server = PayServer(folder)
    try:
        yield server
    finally:
        server.close()
