"""Write `.env` for docker-compose.yaml: `docker/env.example` with a random value for every name that is empty there."""

from __future__ import annotations

import base64
import os
import secrets
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def filled(line: str) -> str:
    """Return a line of the example with its secret, or as it is.

    :param line: a line of `docker/env.example`.
    """
    name, equals, value = line.partition("=")
    if line.startswith("#") or not equals or value:
        return line
    if name == "AIRFLOW_FERNET_KEY":
        return f"{name}={base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()}"
    # Hexadecimal: these stand in connection URIs, where other characters would need quoting.
    return f"{name}={secrets.token_hex(20)}"


def main() -> int:
    """Write the file where there is none; never replace secrets that a volume may already have been made with."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / ".env"
    lines = [filled(line) for line in (HERE / "env.example").read_text().splitlines()]
    try:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        print(f"{target} exists already and is left alone", file=sys.stderr)
        return 1
    with os.fdopen(handle, "w") as file:
        file.write("\n".join(lines) + "\n")
    print(f"Wrote {target}. Log in as admin with AIRFLOW_ADMIN_PASSWORD from it.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
