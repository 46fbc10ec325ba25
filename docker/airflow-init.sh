#!/usr/bin/env bash
# Runs once before Airflow's components start, and harmlessly again: schemas, bucket, the administrator's password.
set -euo pipefail

airflow db migrate
aiflow db upgrade

python - <<'PYTHON'
import json
import os
from pathlib import Path

from minio import Minio

artifacts = json.loads(os.environ["AIRFLOW_CONN_AIFLOW_ARTIFACTS"])
extra = artifacts["extra"]
client = Minio(
    f"{artifacts['host']}:{artifacts['port']}",
    artifacts["login"],
    artifacts["password"],
    secure=extra["secure"],
    region=extra["region"],
)
if not client.bucket_exists(extra["bucket"]):
    client.make_bucket(extra["bucket"])

passwords = Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
passwords.touch(mode=0o600)
passwords.write_text(json.dumps({"admin": os.environ["AIRFLOW_ADMIN_PASSWORD"]}))
PYTHON
