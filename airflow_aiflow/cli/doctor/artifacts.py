"""The artifact store: whether it keeps what it is given, and how it behaves beyond that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_aiflow.cli.doctor.finding import Finding, ok, warning
from airflow_aiflow.exceptions import ArtifactError

if TYPE_CHECKING:
    from airflow_aiflow.storage.s3 import S3ArtifactStore
    from airflow_aiflow.storage.s3_probe import ProbeReport

#: The value that is stored and read back. Always the same, so that one object stays, however often it is tried.
VALUE = b'"aiflow doctor"'


def keeps(store: S3ArtifactStore) -> Finding:
    """
    Put a value and read it back, verified by its SHA-256.

    :param store: the store.
    """
    if store.get_value(store.put_value(VALUE)) != VALUE:
        raise ArtifactError(f"{store.settings.address} gives back another value than was stored")
    where = f"s3://{store.settings.bucket}" + (f"/{store.settings.prefix}" if store.settings.prefix else "")
    return ok(f"{store.settings.address} kept a value in {where} and gave it back, verified")


def conditions(report: ProbeReport) -> Finding:
    """
    Show how the server takes conditions and checksums. Nothing rests on either.

    :param report: of the probe.
    """
    return ok(
        f"{report.server}: a put that must not overwrite is {report.conditional_put}, a wrong checksum is "
        f"{report.checksum}. Nothing rests on either: objects are addressed by their SHA-256 and verified on reading"
    )


def rights(report: ProbeReport) -> Finding:
    """
    Look for rights of the key.

    :param report: of the probe.
    """
    missing = [] if report.deletes else ["delete objects"]
    missing += [] if report.lists_uploads else ["list unfinished uploads"]
    if not missing:
        return ok("the key may store, read and delete objects, and list unfinished uploads")
    return warning(
        f"the key may not {' or '.join(missing)}",
        "tasks work; what is not needed any more stays, and so do the parts of uploads that were cut off",
        "allow s3:DeleteObject and s3:ListBucketMultipartUploads; let a rule of the bucket abort unfinished uploads",
    )
