"""
Ask Airflow which runs it still has: what is told here as gone is about to be removed for good.

So "could not read" is never "is not there": a 404 counts where it names what is not there, as Airflow's own does, and a
proxy's does not while the server behind it restarts. A DAG's runs are listed in the order of their ids, each page with
the last row of the one before: where that row has moved, runs were deleted meanwhile, and the list begins anew. One run
that is missing in the list is asked for by itself, since a list leaves out what its reader may not see.

Not covered: a run id with a slash has no address in the API, which takes it for more of the path: it never counts as
gone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from urllib.parse import quote

from airflow_aiflow.exceptions import AiflowConfigError, AirflowRefusedError, AirflowUnavailableError
from airflow_aiflow.hooks.airflow_api import PAGE, AirflowApi, run_path

#: How often a list is begun, while runs are deleted under it.
PASSES = 5


class AirflowRuns:
    """
    Tell which runs are gone.

    :param api: Airflow's REST API.
    :param named: DAGs of which runs may be gone although Airflow does not know the DAG: of all others that may as well
        mean that this is another Airflow.
    :raises AirflowUnavailableError: by every method, if there is no answer.
    :raises AirflowRefusedError: by every method, if the API refused.
    """

    def __init__(self, api: AirflowApi, *, named: Collection[str] = ()) -> None:
        self._api = api
        self._named = frozenset(named)
        self._listed: dict[str, frozenset[str]] = {}
        self._asked: dict[tuple[str, str], bool] = {}
        self._known: dict[str, bool] = {}

    @property
    def unknown_dags(self) -> list[str]:
        """DAGs that were asked about and that Airflow does not know."""
        return sorted(dag_id for dag_id, known in self._known.items() if not known)

    def check(self) -> None:
        """
        See whether this is Airflow at all: a stranger's 404 must not count as "no such run".

        :raises AiflowConfigError: if it answers as something else.
        """
        answer = self._api.request("GET", "/dags", params={"limit": 1})
        if not isinstance(answer, dict) or not isinstance(answer.get("dags"), list):
            raise AiflowConfigError(f"{self._api.base_url} does not answer as Airflow's API does. Nothing was removed")

    def gone(self, dag_id: str, run_ids: Collection[str]) -> set[str]:
        """
        Tell which of these runs Airflow no longer has.

        :param dag_id: their DAG.
        :param run_ids: any.
        """
        if not self.knows(dag_id):
            return self._by_themselves(dag_id, run_ids) if dag_id in self._named else set()
        if dag_id not in self._listed:
            unasked = [one for one in run_ids if (dag_id, one) not in self._asked]
            if not self._list_is_cheaper(dag_id, len(unasked)):
                return self._by_themselves(dag_id, run_ids)
            self._listed[dag_id] = self._list(dag_id)
        missing = {one for one in run_ids if "/" not in one} - self._listed[dag_id]
        if missing and (one := max(missing)) not in self._by_themselves(dag_id, [one]):
            raise AiflowConfigError(
                f"Airflow has run {one} of {dag_id}, and does not list it: give the user of AIRFLOW_CONN_AIFLOW_API "
                "the right to see all runs, or try again if it was made just now. Nothing more was removed"
            )
        return missing

    def knows(self, dag_id: str) -> bool:
        """
        Tell whether Airflow knows a DAG.

        :param dag_id: the DAG.
        """
        if dag_id not in self._known:
            self._known[dag_id] = self._found(f"/dags/{quote(dag_id, safe='')}", dag_id)
        return self._known[dag_id]

    def _list_is_cheaper(self, dag_id: str, runs: int) -> bool:
        if runs <= 1:
            return False
        page = self._page(dag_id, 0)
        return len(page[0]) * runs >= page[1]

    def _list(self, dag_id: str) -> frozenset[str]:
        for _ in range(PASSES):
            found = self._pass(dag_id)
            if found is not None:
                return frozenset(found)
        raise AirflowUnavailableError(f"runs of {dag_id} are being deleted while they are listed: try again later")

    def _pass(self, dag_id: str) -> list[str] | None:
        """List all, or nothing where rows have moved: each page begins with the last row of the one before."""
        found: list[str] = []
        while True:
            rows, total = self._page(dag_id, max(0, len(found) - 1))
            if found and rows[:1] != found[-1:]:
                return None
            new = rows[1:] if found else rows
            if not new:
                if len(found) < total:
                    raise AirflowUnavailableError(
                        f"Airflow lists {len(found)} of {total} runs of {dag_id}: its [api] maximum_page_limit must be "
                        "2 or more"
                    )
                return found
            found += new

    def _page(self, dag_id: str, offset: int) -> tuple[list[str], int]:
        params = {"limit": PAGE, "offset": offset, "order_by": "id"}
        try:
            page = self._api.request("GET", f"/dags/{quote(dag_id, safe='')}/dagRuns", params=params)
        except AirflowRefusedError as error:
            if error.status == 404:  # its code is gone, its runs may be there: each is asked for by itself
                return [], PAGE * PAGE
            raise
        return [str(row["dag_run_id"]) for row in page["dag_runs"]], int(page["total_entries"] or 0)

    def _by_themselves(self, dag_id: str, run_ids: Iterable[str]) -> set[str]:
        return {one for one in run_ids if not self._has(dag_id, one)}

    def _has(self, dag_id: str, run_id: str) -> bool:
        key = dag_id, run_id
        if key not in self._asked:
            self._asked[key] = "/" in run_id or self._found(run_path(dag_id, run_id), run_id)
        return self._asked[key]

    def _found(self, path: str, name: str) -> bool:
        try:
            self._api.request("GET", path)
        except AirflowRefusedError as error:
            if error.status == 404 and _names(error.body, name):
                return False
            raise
        return True


def _names(body: str, name: str) -> bool:
    """Tell whether a refusal's detail names what was asked for."""
    try:
        answer = json.loads(body)
    except ValueError:
        return False
    return isinstance(answer, dict) and name in str(answer.get("detail", ""))
