"""Changes of a stream on a condition: one that names a version is refused in every other version."""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest

from eventproc.errors import StaleVersion
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.policies import RetentionPolicy, ScalingPolicy, StreamConfig
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.states import StreamState
from eventproc.store.requests import Request, RequestStatus
from eventproc.workflows.request_runner import step
from eventproc.workflows.requests import CreateStream, ScaleStream, SealStream, UpdateStream
from tests.transactions.support import NAME, make_txn_stream, write
from tests.workflows.support import Life, event_of

TXN: Final = "01900000-0000-7000-8000-000000000001"
HOUR_MS: Final = 3_600_000
TWO: Final = StreamConfig(scaling=ScalingPolicy.fixed(2))
KEPT: Final = StreamConfig(scaling=ScalingPolicy.fixed(2), retention=RetentionPolicy(size_bytes=1_000_000))


async def test_of_two_changes_on_one_version_the_second_is_refused_when_it_runs(life: Life) -> None:
    await life.done(CreateStream("s/t", TWO))
    before = await life.record("s/t")
    stream_id, version = before.value.stream_id, before.version
    halves = (KeyRange(0.0, 0.25), KeyRange(0.25, 0.5))
    scale = ScaleStream("s/t", stream_id, (SegmentId(0),), halves, if_version=version)
    update = UpdateStream("s/t", stream_id, KEPT, if_version=version)
    first = await life.ep.requests.submit(scale)
    second = await life.ep.requests.submit(update)
    await life.run()
    assert (await life.ep.requests.get(first.id)).status is RequestStatus.DONE
    refused = await life.ep.requests.get(second.id)
    assert isinstance(refused.error, StaleVersion)
    assert (refused.error.expected, refused.error.present) == (before.version, before.version + 1)
    assert (await life.record("s/t")).value.config == TWO


async def begun_seal(life: Life) -> tuple[Request, int]:
    """Return a seal with a version and a deadline, of which one step of two is done, and the version before it."""
    txn_stream = await make_txn_stream(life)
    await txn_stream.begin(txn_id=TXN)
    await write(txn_stream, TXN, [(b"1", "k1")], identity=1)
    await txn_stream.commit(TXN)  # decided, so that the seal needs two steps
    before = await life.record(NAME)
    asked = SealStream(NAME, before.value.stream_id, if_version=before.version)
    seal = await life.ep.requests.submit(asked, within_ms=HOUR_MS)
    owner, event = await life.claim(), await life.db.read(partial(event_of, seal.id))
    assert not await life.db.write(partial(step, request_id=seal.id, event=event, owner=owner))
    return seal, before.version


async def test_change_that_has_begun_ends_although_its_own_steps_make_versions(life: Life) -> None:
    seal, version = await begun_seal(life)
    assert (await life.record(NAME)).version == version + 1
    await life.run()
    assert (await life.ep.requests.get(seal.id)).status is RequestStatus.DONE
    assert (await life.record(NAME)).value.state is StreamState.SEALED


@pytest.mark.acceptance("B17", differs="what could stop it is its deadline: no other request can")
async def test_request_that_has_begun_runs_to_its_end_after_its_deadline(life: Life) -> None:
    seal, _ = await begun_seal(life)
    life.clock.advance(2 * HOUR_MS)
    await life.run()
    assert (await life.ep.requests.get(seal.id)).status is RequestStatus.DONE
