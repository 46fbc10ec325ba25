"""
``once(SQLExecuteQueryOperator, transactional=True)``: the statements and the record of them are one commit.

The operator's own ``execute`` runs, with its handler, its splitting and its output; only the connection is the
transaction's, which it can neither commit nor close.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_aiflow.exceptions import EffectOptionError
from airflow_aiflow.runtime.interrupts import author

if TYPE_CHECKING:
    from airflow_aiflow.durable.policy import EffectOptions
    from airflow_aiflow.runtime.flow import Flow

#: The one class whose work is statements and nothing else.
OPERATOR = "airflow.providers.common.sql.operators.sql.SQLExecuteQueryOperator"

#: Options of an effect that a transaction has; nothing about it can be in doubt.
TRANSACTION_OPTIONS = frozenset({"scope", "on_conflict", "identity"})


def check_transactional(operator: Any) -> None:
    """
    Refuse, while the DAG is parsed, what can't be one transaction.

    :param operator: a wrapped ``SQLExecuteQueryOperator``.
    :raises EffectOptionError: naming the task and the argument.
    """
    where = f"task '{operator.task_id}'"
    if operator.autocommit:
        raise EffectOptionError(
            f"{where}: autocommit=True commits each statement by itself; with transactional=True all of them and their "
            f"record are one commit, so leave it out"
        )
    if not operator.conn_id:
        raise EffectOptionError(f"{where}: transactional=True needs conn_id= with a connection of type postgres")
    if operator.database or operator.hook_params:
        raise EffectOptionError(
            f"{where}: with transactional=True the connection alone says which database it is; leave database= and "
            f"hook_params= out"
        )


def execute_query(cursor: Any, sql: Any, parameters: Any) -> Any:
    """
    Be what the request of such a task is called; its arguments are what counts.

    :param cursor: of the transaction.
    :param sql: one statement, or several.
    :param parameters: of them.
    """
    raise NotImplementedError("the operator's own execute runs")


def run_transaction(operator: Any, flow: Flow, name: str, go_on: Callable[[], Any], options: EffectOptions) -> Any:
    """
    Run the statements once.

    :param operator: with its templates rendered.
    :param flow: the attempt at work.
    :param name: the effect's name.
    :param go_on: the operator's ``execute``.
    :param options: checked.
    """
    from airflow_aiflow.runtime.transactions import TransactionCall

    def run(cursor: Any) -> Any:
        hook = operator.get_db_hook()
        hook.get_conn = lambda: _Connection(cursor)
        return author(go_on)

    told = (operator.sql, operator.parameters)
    call = TransactionCall(
        flow._session, name, execute_query, told, operator.conn_id, options, flow._names.identify, run=run
    )
    return call.run()


class _Connection:
    """Be what a hook does with a connection, without an end of the transaction."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self.autocommit = False
        self.notices: list[str] = []

    def cursor(self) -> Any:
        return _Cursor(self._cursor)

    def commit(self) -> None:
        """Leave it to the transaction."""

    def close(self) -> None:
        """Leave it to the transaction."""


class _Cursor:
    """Be the transaction's cursor, which a hook can't close."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __iter__(self) -> Any:
        return iter(self._cursor)

    def close(self) -> None:
        """Leave it open: the record of what was done is written on it."""
