"""Requests of workflows: intent, event and outcome, in one row and one transaction."""

from __future__ import annotations

from eventproc.store.requests.events import post
from eventproc.store.requests.outcomes import Outcome, Outcomes, note_result
from eventproc.store.requests.table import (
    OUTCOME_MEMORY_MS,
    Deadline,
    Request,
    RequestStatus,
    find_request,
    finish_request,
    forget_outcomes,
    get_request,
    list_requests,
    pending_requests,
    start_request,
    submit_request,
    watch_request,
)

__all__ = [
    "OUTCOME_MEMORY_MS",
    "Deadline",
    "Outcome",
    "Outcomes",
    "Request",
    "RequestStatus",
    "find_request",
    "finish_request",
    "forget_outcomes",
    "get_request",
    "list_requests",
    "note_result",
    "pending_requests",
    "post",
    "start_request",
    "submit_request",
    "watch_request",
]
