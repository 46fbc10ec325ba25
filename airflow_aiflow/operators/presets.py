"""
What ``once`` knows of operators: what counts as the same request, and how their clients stop repeating by themselves.

Classes are named, never imported, so that a DAG file pays for nothing; a subclass has what its base has.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from airflow_aiflow.exceptions import EffectOptionError

#: Methods after which nothing has changed, however often they are sent.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


def _nothing(_operator: Any) -> AbstractContextManager[None]:
    return nullcontext()


def _fits(_operator: Any, _keyed: bool) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Preset:
    """
    Hold what is known of a class of operators.

    :param identity: names of the fields that make two requests the same; ``None``: all.
    :param also: attributes that belong to the request beside the templated ones.
    :param brief: whether it makes one request, which the deployment's ``effect_timeout`` fits.
    :param has_headers: whether ``headers`` go out with the request, so that the target can be given our key.
    :param triggers: whether it has Airflow make a run, whose id can bear our key.
    :param check: refuses, while the DAG is parsed, what can't be done once.
    :param alone: the context in which its client repeats nothing by itself.
    """

    identity: tuple[str, ...] | None = None
    also: tuple[str, ...] = ()
    brief: bool = False
    has_headers: bool = False
    triggers: bool = False
    check: Callable[[Any, bool], None] = _fits
    alone: Callable[[Any], AbstractContextManager[None]] = _nothing


@contextmanager
def _mail_sent_once(_operator: Any) -> Iterator[None]:
    """Send one mail one time: a lost reply is not a lost mail, and the hook would send up to five more."""
    from airflow.providers.smtp.hooks.smtp import SmtpHook

    kept = vars(SmtpHook)["smtp_retry_limit"]
    setattr(SmtpHook, "smtp_retry_limit", property(lambda self: 0))  # noqa: B010 - the class is Airflow's
    try:
        yield
    finally:
        setattr(SmtpHook, "smtp_retry_limit", kept)  # noqa: B010


@contextmanager
def _one_request(operator: Any) -> Iterator[None]:
    kept, operator.retry_args = operator.retry_args, None
    try:
        yield
    finally:
        operator.retry_args = kept


@contextmanager
def _one_boto_try(_operator: Any) -> Iterator[None]:
    """
    Have boto send each request one time.

    Not covered: a connection whose extras name retries of their own (``config_kwargs``).
    """
    kept = os.environ.get("AWS_MAX_ATTEMPTS")
    os.environ["AWS_MAX_ATTEMPTS"] = "1"
    try:
        yield
    finally:
        if kept is None:
            os.environ.pop("AWS_MAX_ATTEMPTS", None)
        else:
            os.environ["AWS_MAX_ATTEMPTS"] = kept


def _check_http(operator: Any, keyed: bool) -> None:
    method = str(operator.method or "").upper()
    if operator.deferrable and method not in SAFE_METHODS and not keyed:
        raise EffectOptionError(
            f"task '{operator.task_id}': method={operator.method!r} with deferrable=True is sent by the triggerer, "
            f"which sends it again when it is restarted. Give once() idempotency_header=, for a target that dedups by "
            f"it, or leave deferrable out"
        )
    if operator.pagination_function is not None and keyed:
        raise EffectOptionError(
            f"task '{operator.task_id}': pagination_function= sends several requests, and all of them would bear one "
            f"idempotency key; leave idempotency_header= or the pages out"
        )


def _s3(*identity: str) -> Preset:
    return Preset(identity=identity, alone=_one_boto_try)


_AMAZON = "airflow.providers.amazon.aws"

#: Module and class -> what is known.
PRESETS: dict[str, Preset] = {
    "airflow.providers.smtp.operators.smtp.EmailOperator": Preset(
        identity=("to", "cc", "bcc"), brief=True, alone=_mail_sent_once
    ),
    "airflow.providers.http.operators.http.HttpOperator": Preset(
        identity=("endpoint", "method", "data"),
        also=("method",),
        brief=True,
        has_headers=True,
        check=_check_http,
        alone=_one_request,
    ),
    "airflow.providers.common.sql.operators.sql.SQLExecuteQueryOperator": Preset(identity=("sql", "parameters")),
    "airflow.providers.standard.operators.trigger_dagrun.TriggerDagRunOperator": Preset(
        identity=("trigger_dag_id", "conf", "trigger_run_id"), triggers=True
    ),
    "airflow.providers.standard.operators.bash.BashOperator": Preset(identity=("bash_command",)),
    f"{_AMAZON}.operators.s3.S3CreateObjectOperator": _s3("s3_bucket", "s3_key", "data"),
    f"{_AMAZON}.operators.s3.S3CopyObjectOperator": _s3(
        "source_bucket_name", "source_bucket_key", "dest_bucket_name", "dest_bucket_key"
    ),
    f"{_AMAZON}.operators.s3.S3CopyPrefixOperator": _s3(
        "source_bucket_name", "source_bucket_prefix", "dest_bucket_name", "dest_bucket_prefix"
    ),
    f"{_AMAZON}.operators.s3.S3DeleteObjectsOperator": _s3("bucket", "keys", "prefix", "from_datetime", "to_datetime"),
    f"{_AMAZON}.operators.s3.S3FileTransformOperator": _s3("source_s3_key", "dest_s3_key", "script_args"),
    f"{_AMAZON}.operators.s3.S3CreateBucketOperator": _s3("bucket_name"),
    f"{_AMAZON}.operators.s3.S3DeleteBucketOperator": _s3("bucket_name"),
    f"{_AMAZON}.transfers.local_to_s3.LocalFilesystemToS3Operator": _s3("filename", "dest_bucket", "dest_key"),
}


def preset_of(operator_class: type) -> Preset:
    """
    Find what is known of a class.

    :param operator_class: of an operator.
    """
    for base in operator_class.__mro__:
        known = PRESETS.get(f"{base.__module__}.{base.__qualname__}")
        if known is not None:
            return known
    return Preset()
