"""Run given SQL statements as one transactional effect: for operators that are made of SQL instead of a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_aiflow.runtime.transactions import TransactionCall

if TYPE_CHECKING:
    from airflow_aiflow.durable.policy import EffectOptions
    from airflow_aiflow.runtime.flow import Flow

Parameters = Sequence[Any] | Mapping[str, Any]


def sql(cursor: Any, statements: Sequence[str], parameters: Parameters | None) -> Any:
    """
    Be what the request of such an effect is called; its arguments are what counts.

    :param cursor: of the transaction.
    :param statements: one SQL statement each.
    :param parameters: the same for each of them.
    """
    return run_statements(cursor, statements, parameters, None)


def run_statements(
    cursor: Any, statements: Sequence[str], parameters: Parameters | None, result: Callable[[Any], Any] | None
) -> list[Any]:
    """
    Execute statements in order.

    :param cursor: of psycopg 3.
    :param statements: one SQL statement each.
    :param parameters: the same for each of them; ``None`` or empty: a ``%`` in a statement stands for itself.
    :param result: reads what a statement gave from the cursor, as ``fetch_all_handler`` does; ``None``: nothing does.
    :return: what ``result`` gave for each.
    """
    results = []
    for each in statements:
        cursor.execute(each, parameters or None)
        results.append(None if result is None else result(cursor))
    return results


def sql_transaction(
    flow: Flow,
    name: str,
    statements: Sequence[str],
    parameters: Parameters | None,
    *,
    conn_id: str,
    options: EffectOptions,
    result: Callable[[Any], Any] | None = None,
) -> list[Any]:
    """
    Execute SQL statements once, in one transaction, as ``flow.transaction`` does for a function.

    :param flow: the attempt at work.
    :param name: the effect's name.
    :param statements: one SQL statement each; several in one text are refused by the server.
    :param parameters: the same for each of them.
    :param conn_id: a connection of type ``postgres``.
    :param options: checked.
    :param result: see ``run_statements``.
    :return: the stored results, one for each statement.
    """
    given = None if parameters is None else (dict(parameters) if isinstance(parameters, Mapping) else list(parameters))
    call = TransactionCall(
        flow._session,
        name,
        sql,
        (list(statements), given),
        conn_id,
        options,
        flow._names.identify,
        run=lambda cursor: run_statements(cursor, statements, given, result),
    )
    done: list[Any] = call.run()
    return done
