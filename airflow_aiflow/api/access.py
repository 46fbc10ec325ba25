"""
Who may read the figures: an Airflow user who may see the cluster's activity, or a scraper with the configured token.

Airflow mounts a plugin's app as it is, without authentication: each route needs its own. The UI's cookie counts as a
user, so a page of another site can make a browser ask; it can't read the answer, and asking changes nothing of weight.
"""

from __future__ import annotations

import hashlib
import hmac

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from fastapi import HTTPException, Request, status
from fastapi.concurrency import run_in_threadpool
from fastapi.security.utils import get_authorization_scheme_param

from airflow_aiflow.api.rights import signed_in
from airflow_aiflow.config import metrics_token


async def scraper_or_viewer(request: Request) -> None:
    """
    Let a scraper or a user in.

    :raises HTTPException: 401 without valid credentials, 403 for a user without the right.
    :raises AiflowConfigError: if the configured token can't be used.
    """
    scheme, credentials = get_authorization_scheme_param(request.headers.get("Authorization"))
    bearer = credentials if scheme.lower() == "bearer" else ""
    if bearer and is_scrape_token(bearer):
        return
    user = await signed_in(request)
    view = AccessView.CLUSTER_ACTIVITY
    if not await run_in_threadpool(get_auth_manager().is_authorized_view, access_view=view, user=user):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "Forbidden")


def is_scrape_token(given: str) -> bool:
    """
    Compare a token with the configured one, in a time that tells nothing of either.

    :param given: what a client sent.
    :return: ``False`` also where none is configured.
    """
    wanted = metrics_token()
    if wanted is None:
        return False
    # Hashed first: a comparison in constant time is one of equal lengths.
    digests = (hashlib.sha256(one).digest() for one in (given.encode("utf-8", "surrogateescape"), wanted))
    return hmac.compare_digest(*digests)
