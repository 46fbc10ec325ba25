"""What model calls cost, beyond the recorded steps, in PostgreSQL: budgets, wasted calls, waits for a model."""

from __future__ import annotations

from uuid import UUID

from airflow_aiflow.durable.budget import Account, Budget, Held, Hold, Spending
from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.record import Usage
from airflow_aiflow.durable.spending import Wasted
from airflow_aiflow.storage.connections import Connections
from airflow_aiflow.storage.statements import statement
from airflow_aiflow.storage.text import exact, shown

#: The execution, and the fence, of a hold that is no attempt's: identities begin at 1.
NOBODY = Lease(0, 0)


class PostgresSpending:
    """
    Implement the port ``SpendingLedger``.

    :param connections: lends them; may be a ledger's own.
    """

    def __init__(self, connections: Connections) -> None:
        self._ask = connections.ask

    def hold(self, account: Account, budget: Budget, hold: Hold) -> Held:
        """Set an estimate aside where it fits."""
        lease = hold.lease or NOBODY
        params = {
            "identity": account.identity,
            "dag_id": exact(account.dag_id, "dag_id"),
            "run_id": exact(account.run_id, "run_id"),
            "task_id": exact(account.task_id, "task_id"),
            "name": shown(account.name),
            "hold_id": hold.hold_id,
            "execution_id": lease.execution_pk,
            "generation": hold.generation,
            "fence": lease.fence,
            "step_key": hold.step_key,
            "cost": hold.amount.cost,
            "tokens": hold.amount.tokens,
            "seconds": hold.seconds,
            "most_cost": budget.cost,
            "most_tokens": budget.tokens,
        }
        [(granted, *figures)] = self._ask(statement("budget_hold"), params)
        spent, unknown, held = (Spending(*figures[at : at + 2]) for at in (0, 2, 4))
        return Held(granted, spent, unknown, held)

    def settle(self, account: Account, hold: Hold, spent: Spending, *, unknown: bool = False) -> None:
        """Replace an estimate by what the call cost."""
        params = {
            "identity": account.identity,
            "hold_id": hold.hold_id,
            "cost": spent.cost,
            "tokens": spent.tokens,
            "unknown": unknown,
        }
        self._ask(statement("budget_settle"), params)

    def waste(self, lease: Lease, generation: int, call_id: UUID, name: str, usage: Usage) -> None:
        """Note a call that was paid and gave nothing to record."""
        params = {
            "call_id": call_id,
            "execution_id": lease.execution_pk,
            "generation": generation,
            "fence": lease.fence,
            "name": shown(name),
            "model": None if usage.model is None else shown(usage.model),
            "tokens_in": usage.tokens_in,
            "tokens_out": usage.tokens_out,
            "cost": usage.cost,
        }
        self._ask(statement("wasted_add"), params)

    def wasted(self, lease: Lease, generation: int) -> Wasted:
        """Sum up what earlier attempts of a generation wasted."""
        params = {"execution_id": lease.execution_pk, "generation": generation, "fence": lease.fence}
        [row] = self._ask(statement("wasted"), params)
        return Wasted(*row)

    def waits(self, lease: Lease, number: int, *, served: bool) -> float:
        """Tell for how long an attempt has waited for a model."""
        params = {"execution_id": lease.execution_pk, "number": number, "served": served}
        [(waited,)] = self._ask(statement("model_wait"), params)
        return float(waited)
