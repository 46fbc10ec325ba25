"""
Who may do what: Airflow's own users, tokens and permissions, asked for each request.

What a user may not see is not there: 404, so that nobody learns whether another's task exists.
"""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Request, status
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials
from fastapi.security.utils import get_authorization_scheme_param

#: What a client that gave no, or no valid, credentials is told to give.
CHALLENGE = {"WWW-Authenticate": "Bearer"}

Method = Literal["GET", "POST", "PUT", "DELETE"]

#: Methods that change nothing.
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


async def signed_in(request: Request) -> BaseUser:
    """
    Give the user behind a request: a bearer token, or the cookie of Airflow's own pages.

    A cookie is sent by the browser whoever wrote the page, so a change by cookie has to come from this very site.

    :raises HTTPException: 401 without valid credentials, 403 for another site's page.
    """
    scheme, credentials = get_authorization_scheme_param(request.headers.get("Authorization"))
    bearer = credentials if scheme.lower() == "bearer" else ""
    given = HTTPAuthorizationCredentials(scheme=scheme, credentials=credentials) if bearer else None
    if given is None and request.method not in SAFE and not _same_site(request):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "a change by cookie has to come from this site's own pages")
    try:
        return await get_user(request, None, given)
    except HTTPException as refused:
        # Airflow answers 403 to a token that is none.
        raise HTTPException(status.HTTP_401_UNAUTHORIZED, "Not authenticated", CHALLENGE) from refused


SignedIn = Annotated[BaseUser, Depends(signed_in)]


def _same_site(request: Request) -> bool:
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("Origin")
    return origin is not None and urlsplit(origin).netloc == request.headers.get("Host")


def may(user: BaseUser, method: Method, dag_id: str, entity: DagAccessEntity | None = DagAccessEntity.RUN) -> bool:
    """
    Ask Airflow's auth manager.

    :param user: who.
    :param method: what: reading is ``GET``, triggering ``POST``, changing ``PUT``.
    :param dag_id: of which DAG.
    :param entity: which part of it.
    """
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return bool(get_auth_manager().is_authorized_dag(method=method, access_entity=entity, details=details, user=user))


def check(user: BaseUser, method: Method, dag_id: str, *, missing: str) -> None:
    """
    Refuse a user without the right.

    :param missing: what to say where not even reading is allowed.
    :raises HTTPException: 404 where the user may not read, 403 where reading is all that is allowed.
    """
    if may(user, method, dag_id):
        return
    if method != "GET" and may(user, "GET", dag_id):
        raise HTTPException(status.HTTP_403_FORBIDDEN, f"you may read {dag_id}, not change it")
    raise HTTPException(status.HTTP_404_NOT_FOUND, missing)


async def require(user: BaseUser, method: Method, dag_id: str, *, missing: str) -> None:
    """
    Do the same without blocking.

    :param missing: what to say where not even reading is allowed.
    :raises HTTPException: as ``check`` does.
    """
    await run_in_threadpool(check, user, method, dag_id, missing=missing)


def json_only(request: Request, _user: SignedIn) -> None:
    """
    Refuse a body that is no JSON: a form of another site can't send any.

    Nobody without credentials learns more than that they are missing.

    :raises HTTPException: 415.
    """
    media_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise HTTPException(status.HTTP_415_UNSUPPORTED_MEDIA_TYPE, "a body has to be application/json here")


class Sight:
    """
    Remember, for one request, what a user may read and change.

    :param user: who.
    """

    def __init__(self, user: BaseUser) -> None:
        self._user = user
        self._known: dict[tuple[Method, str], bool] = {}

    def reads(self, dag_id: str) -> bool:
        """
        Say whether the user may read a DAG's runs.

        :param dag_id: the DAG.
        """
        return self._may("GET", dag_id)

    def changes(self, dag_id: str) -> bool:
        """
        Say whether the user may change a DAG's runs.

        :param dag_id: the DAG.
        """
        return self._may("PUT", dag_id)

    def _may(self, method: Method, dag_id: str) -> bool:
        if (method, dag_id) not in self._known:
            self._known[method, dag_id] = may(self._user, method, dag_id)
        return self._known[method, dag_id]

    def dags(self) -> tuple[str, ...]:
        """List the DAGs that the user may see; to see one is less than to see its runs."""
        return readable(self._user)

    def results(self, dag_id: str) -> bool:
        """
        Say whether the user may see what tasks gave.

        :param dag_id: the DAG.
        """
        return may(self._user, "GET", dag_id, DagAccessEntity.XCOM)


def readable(user: BaseUser) -> tuple[str, ...]:
    """
    List the DAGs whose runs a user may read.

    :param user: who.
    """
    return tuple(sorted(get_auth_manager().get_authorized_dag_ids(user=user, method="GET")))
