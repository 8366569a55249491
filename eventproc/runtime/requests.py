"""Requests by id: submit one without waiting, look at it, wait for its outcome."""

from __future__ import annotations

import builtins
from functools import partial

from eventproc.base.clock import new_id
from eventproc.store.database import Database
from eventproc.store.model.argument_checks import check_int, check_str
from eventproc.store.model.list_pages import ListPage, NameFilter
from eventproc.store.requests import Request, get_request, list_requests
from eventproc.streams import request_calls
from eventproc.streams.request_calls import WAIT_MS
from eventproc.workflows.preview import RequestPreview, preview
from eventproc.workflows.requests import Operation


class Requests:
    """The requests of a directory; `ep.requests`. Any process finds a request by its id, for a day after its end."""

    def __init__(self, db: Database, readable: NameFilter | None = None) -> None:
        """readable: which targets `list` shows. None (default): all."""
        self._db = db
        self._readable = readable

    def __repr__(self) -> str:
        return f"Requests({self._db.name!r})"

    async def submit(
        self,
        request: Operation,
        *,
        request_id: str | None = None,
        within_ms: int | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> Request:
        """Record a request without waiting for its outcome, and return it.

        If an equal request is pending, this call joins it and returns that one, under its id.

        Args:
            request: what to change, such as `SealStream("shop/orders", 0)`, with 0 for the stream of that name.
            request_id: a UUID version 7, such as `new_id` makes. Repeating a call with the same id returns what
                became of the first call. None (default): a new id.
            within_ms: how long from now the request may begin, in ms; after that its outcome is Expired. None
                (default): no limit.
            timeout_ms: how long to wait until it is recorded, in ms, while another process holds the write lock.
                Default: 120 s.

        Raises:
            InvalidArgument: the request or an option is not valid.
            LockHeld: the wait for the write lock ended; nothing was recorded.
            InProgress: another request of this kind is running on the object.
            Expired: the id is older than a day.
            Rejected: a subclass says why the request is refused immediately.
        """
        asked = request_calls.check_request(request)
        return await request_calls.submit_request(
            self._db, asked, request_id=request_id, within_ms=within_ms, timeout_ms=timeout_ms
        )

    async def preview(self, request: Operation) -> RequestPreview:
        """Return what a request would destroy, and change nothing.

        Args:
            request: as for `submit`.

        Raises:
            InvalidArgument: the request is not valid.
            Rejected: a subclass says why the request would be refused immediately.

        Cost:
            One snapshot; a few look-ups for each segment that it would delete.
        """
        asked = request_calls.check_request(request)
        return await self._db.read(lambda tx: preview(tx, asked))

    def new_id(self) -> str:
        """Return a new id for a request: a UUID version 7.

        Store it before the call that it names: then the call can be repeated after a crash, and is made once. A day
        after it was made, an id can no longer name a new call.
        """
        return new_id(self._db.clock)

    async def get(self, request_id: str) -> Request:
        """Return a request and what became of it.

        Args:
            request_id: its id, or the id of a request that joined it.

        Raises:
            NotFound: no request has that id, or it ended more than a day ago.
        """
        check_str("request id", request_id)
        return await self._db.read(lambda tx: get_request(tx, request_id))

    async def list(self, *, limit: int = 100, after: str | None = None) -> builtins.list[Request]:
        """Return the newest requests, newest first.

        Args:
            limit: how many at most. Default: 100.
            after: id of the last request of the previous page. None (default): the first page.

        Raises:
            InvalidArgument: `limit` is less than 1, or an argument has the wrong type.
        """
        page = ListPage.of(self._readable, after=after, limit=check_int("limit", limit, least=1))
        return await self._db.read(partial(list_requests, page=page))

    async def wait(self, request_id: str, *, timeout_ms: int = WAIT_MS) -> Request:
        """Return a request once it is done or rejected, in whichever process it runs.

        Args:
            request_id: its id.
            timeout_ms: how long to wait, in ms. Default: 120 s.

        Raises:
            NotFound: no request has that id.
            StillPending: the wait ended first; the request goes on.
        """
        return await request_calls.wait_for_request(self._db, request_id, timeout_ms=timeout_ms)
