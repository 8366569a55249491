"""Jobs whose outcome is asked for: submitted with an id, done by the workers of a share group, known for a day after.

The event of a job names it in a reserved header. Its row is written in the transaction that appends the event, or
stores it for its time, so that one never is without the other.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final, Generic, get_args

from typing_extensions import TypeVar

from eventproc.base.clock import new_id
from eventproc.base.telemetry_use import find_traces
from eventproc.groups import GROUP, group_name
from eventproc.groups.time_limit import within
from eventproc.processors.dead_letters.operations import choose, list_letters, redrive_step
from eventproc.processors.emit import Emission, append_emissions
from eventproc.store.catalog import get_writable_stream
from eventproc.store.database import Database, Tx
from eventproc.store.delayed_events import NewDelayedEvent, cancel_delayed, forget_delayed, store_delayed
from eventproc.store.faults import Step
from eventproc.store.groups import SHARE, GroupStream
from eventproc.store.jobs import (
    NewJob,
    cancel_job,
    delayed_id,
    discard_jobs,
    get_job,
    get_result,
    insert_job,
    list_jobs,
    watch_job,
)
from eventproc.store.model.argument_checks import check_choice, check_int, check_str, invalid_argument
from eventproc.store.model.errors import InvalidArgument, NotFound
from eventproc.store.model.group_errors import JobCancelled, JobFailed
from eventproc.store.model.jobs import (
    ENDED,
    JOB_ID_CHARS_MAX,
    RESULT_BYTES_MAX,
    JobDescription,
    JobState,
)
from eventproc.store.records import find
from eventproc.streams.codec import Codec, PayloadCodec, codec_for
from eventproc.streams.new_events import reserving

P = TypeVar("P", default=bytes)
R = TypeVar("R", default=Any)

PLAIN: Final = (str, int, float, bool, type(None), list, dict)
"""Types of results that are JSON themselves; others have a codec."""

LETTERS_A_LOOK: Final = 1_000
"""Dead letters that one look for the event of a job reads."""


class Job(Generic[R]):
    """One job, by its id; made by `Jobs.submit` and `Jobs.job`."""

    def __init__(self, db: Database, group: str, job: str, result: type[R] | None = None) -> None:
        self._db = db
        self._group = group
        self._id = job
        self._result = result

    def __repr__(self) -> str:
        return f"Job({self._id!r}, {self._group!r})"

    @property
    def id(self) -> str:
        """Its id within its group."""
        return self._id

    async def describe(self) -> JobDescription:
        """Return its state, attempts, progress and last error.

        Raises:
            NotFound: no such job, or it ended more than a day ago.
        """
        return await self._db.read(partial(get_job, group=self._group, job=self._id))

    async def result(self, *, timeout_ms: int | None = None) -> R:
        """Return what its handler returned, once it is done.

        Args:
            timeout_ms: how long to wait, in ms. None (default): without limit.

        Raises:
            TimeoutError: the time is over.
            JobFailed: it failed in all of its attempts.
            JobCancelled: it was cancelled, or its stream was deleted.
            NotFound: no such job, or it ended more than a day ago.
            InvalidArgument: what its handler returned is not of the type that `ep.jobs` was given.
        """
        found = await self.describe()  # also without time to wait
        with (
            within(timeout_ms, f"job {self._id!r} of {self._group} has not ended"),
            self._db.subscribe([watch_job(self._group, self._id)]) as changes,
        ):
            while found.state not in ENDED:
                found = await self.describe()
                if found.state not in ENDED:
                    await changes.wait()
        if found.state == "cancelled":
            raise JobCancelled(group=self._group, job=self._id)
        if found.state == "failed":
            raise JobFailed(group=self._group, job=self._id, reason=found.error or "it was given up")
        stored = await self._db.read(partial(get_result, group=self._group, job=self._id))
        decoded: R = _decoded(stored, self._result)
        return decoded

    async def cancel(self) -> bool:
        """Let nobody do the job; return whether that is so: False if it has ended.

        A call that runs is cancelled soon, and what it did is discarded; one on a thread goes on, for nothing.

        Raises:
            NotFound: no such job, or it ended more than a day ago.
        """

        def step(tx: Tx) -> bool:
            found = cancel_job(tx, self._group, self._id)
            if found.due_ms is not None:
                with suppress(NotFound):  # it was appended
                    cancel_delayed(tx, delayed_id(self._group, self._id))
                    discard_jobs(tx, self._group, [self._id])
            return found.state not in ENDED

        return await self._db.write(step, step=Step.JOB_CHANGE)

    async def retry(self) -> bool:
        """Let a failed job be done once more: its dead letter is redriven. Return whether it was failed.

        Raises:
            NotFound: no such job, or it ended more than a day ago; or its dead letter was dropped.
        """

        def look(tx: Tx) -> str | None:
            failed = get_job(tx, self._group, self._id).state == "failed"
            return _letter_of(tx, self._group, self._id) if failed else None

        letter = await self._db.read(look)  # a long search, for which no writer waits
        if letter is None:
            return False

        def step(tx: Tx) -> bool:
            if get_job(tx, self._group, self._id).state != "failed":
                return False
            redrive_step(tx, self._group, choose(tx, self._group, [letter]))
            return True

        return await self._db.write(step, step=Step.JOB_CHANGE)


class Jobs(Generic[P, R]):
    """The jobs of a share group; `ep.jobs` returns it."""

    def __init__(
        self,
        db: Database,
        share_group: str,
        stream: str | None = None,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        result: type[R] | None = None,
    ) -> None:
        """Raises InvalidArgument."""
        self._db = db
        self._group = group_name(share_group)
        self._stream = None if stream is None else check_str("stream", stream)
        self._codec: PayloadCodec[Any] = codec_for(payload if payload is not None else bytes, codec)
        self._result = result

    def __repr__(self) -> str:
        return f"Jobs({self._group!r})"

    @property
    def share_group(self) -> str:
        """The group's name, "scope/group"."""
        return self._group

    async def submit(
        self,
        payload: P,
        *,
        id: str | None = None,
        key: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        delay_ms: int | None = None,
        at: datetime | int | None = None,
    ) -> Job[R]:
        """Append a job to the stream of the group, durably, and return it.

        Args:
            payload: a value of the payload type.
            id: its id. If the group knows a job of this id, that one is returned and nothing is appended. None
                (default): a new one.
            key: routing key. None (default): any segment.
            headers: names and texts beside the payload. None (default): none.
            priority: 0 (default) to 9; higher ones go first.
            delay_ms: do it not before so many ms. None (default): at once.
            at: do it then: a time with its zone, or ms since 1970. None (default).

        Raises:
            NotFound: the stream does not exist; or the group, if no stream was named; or that is no share group.
            InvalidArgument: an argument is not valid, or the group has several streams and none was named.
            StreamSealed: the stream is sealed.
        """
        job = self.job(new_id(self._db.clock) if id is None else id)
        if (traces := find_traces()) is not None:
            headers = traces.carrying(headers)
        with_job = reserving(headers, priority=priority, job=(self._group, job.id))
        named = self._stream or f"{self._group}-jobs"  # checked here, and replaced by the stream of the group
        made = Emission.make(
            named, payload, codec=self._codec, key=key, headers=with_job, delay_ms=delay_ms, at=at
        )

        def step(tx: Tx) -> None:
            stream = _stream_of(tx, self._group, self._stream)
            due_ms = None if made.delay is None else made.delay.due_ms(tx.now_ms)
            new = NewJob(
                id=job.id, group=self._group, stream=stream, payload=made.payload, key=made.key, due_ms=due_ms
            )
            if insert_job(tx, new) is not None:
                return
            forget_delayed(tx, [delayed_id(self._group, job.id)])  # of a group of this name that was deleted
            if made.delay is None:
                append_emissions(tx, [made._replace(stream=stream)])
                return
            event = NewDelayedEvent(
                delayed_id(self._group, job.id), made.delay, made.payload, made.key, None, made.headers
            )
            store_delayed(tx, stream, get_writable_stream(tx, stream).value.stream_id, [event])

        await self._db.write(step, step=Step.JOB_CHANGE)
        return job

    def job(self, id: str) -> Job[R]:
        """Return the job of an id, without looking for it.

        Args:
            id: its id.

        Raises:
            InvalidArgument: it cannot be an id.
        """
        if not 0 < len(check_str("job id", id)) <= JOB_ID_CHARS_MAX or "\0" in id:
            raise invalid_argument(
                "job id", id, f"it must have 1 to {JOB_ID_CHARS_MAX} characters, and no NUL"
            )
        return Job(self._db, self._group, id, self._result)

    async def list(
        self, *, state: JobState | None = None, after: str | None = None, limit: int = 100
    ) -> builtins.list[JobDescription]:
        """Return a page of jobs in the order of their submission; an empty page is the end.

        Args:
            state: only those in this state. None (default): all that are known.
            after: id of the last job of the previous page. None (default): the first page.
            limit: how many at most. Default: 100. The page also ends at about 4 MiB of payloads.

        Raises:
            NotFound: there is no job `after`.
            InvalidArgument: an argument is not valid.
        """
        if state is not None:
            check_choice("state", state, get_args(JobState))
        step = partial(
            list_jobs,
            group=self._group,
            state=state,
            after=None if after is None else check_str("after", after),
            limit=check_int("limit", limit, least=1),
        )
        return await self._db.read(step)


def encoded_result(result: object) -> bytes | None:
    """Return what a handler returned as it is stored: JSON; None for nothing. Raises InvalidArgument."""
    if result is None:
        return None
    try:
        if isinstance(result, PLAIN):
            encoded = json.dumps(result, separators=(",", ":"), ensure_ascii=False).encode()
        else:
            codec: PayloadCodec[Any] = codec_for(type(result))
            encoded = codec.encode(result)
    except (TypeError, ValueError, InvalidArgument) as why:
        raise invalid_argument(
            "result", result, f"it must be JSON, or of a class with a codec: {why}"
        ) from why
    if len(encoded) > RESULT_BYTES_MAX:
        reason = (
            f"it has {len(encoded)} bytes, more than {RESULT_BYTES_MAX}; write it to a file or stream, and return its"
            " name"
        )
        raise invalid_argument("result", result, reason)
    return encoded


def _decoded(stored: bytes | None, kind: type[Any] | None) -> Any:
    if stored is None:
        return None
    if kind is not None and kind not in PLAIN:
        return codec_for(kind).decode(stored)
    try:
        return json.loads(stored.decode())  # bytes alone could pass for UTF-16
    except ValueError as why:
        reason = "it is no JSON; name its class, as ep.jobs(..., result=Receipt)"
        raise invalid_argument("result", stored, reason) from why


def _stream_of(tx: Tx, group: str, named: str | None) -> str:
    """Return the stream that takes the jobs of a group. named: by the caller, perhaps before there is the group."""
    found = find(tx, GROUP, group)
    if found is not None and found.value.kind != SHARE:  # nobody would do them
        raise NotFound(kind="share group", name=group)
    if named is not None:
        return named
    if found is None:
        missing = NotFound(kind="share group", name=group)
        missing.add_note("its worker creates it; or name the stream of the jobs")
        raise missing
    return only_stream(group, found.value.streams)


def only_stream(group: str, streams_of: Iterable[GroupStream]) -> str:
    """Return the stream of a share group's jobs if none is named. Raises InvalidArgument if it has several."""
    streams = [each.name for each in streams_of if not each.added]
    if len(streams) != 1:
        reason = f"share group {group} has the streams {', '.join(streams)}; name the one of the jobs"
        raise invalid_argument("stream", None, reason)
    return streams[0]


def _letter_of(tx: Tx, group: str, job: str) -> str:
    """Return the id of the pending dead letter of a job. Reads all dead letters before it."""
    after: str | None = None
    while letters := list_letters(tx, group, LETTERS_A_LOOK, after):
        for each in letters:
            if each.job == job:
                return each.id
        after = letters[-1].id
    raise NotFound(kind=f"dead letter of {group}", name=f"that of job {job}: it was dropped")
