"""Changes of a stream on a condition: one that names a version is refused in every other version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

import pytest

from eventproc.errors import StaleVersion
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.policies import RetentionPolicy, ScalingPolicy, StreamConfig
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.states import StreamState
from eventproc.store.requests import RequestStatus
from eventproc.workflows.request_runner import step
from eventproc.workflows.requests import (
    AnyRequest,
    CreateStream,
    DeleteStream,
    ScaleStream,
    SealStream,
    TruncateStream,
    UpdateStream,
)
from tests.transactions.support import NAME, make_txn_stream, write
from tests.workflows.support import Life, event_of

TXN: Final = "01900000-0000-7000-8000-000000000001"
HOUR_MS: Final = 3_600_000
TWO: Final = StreamConfig(scaling=ScalingPolicy.fixed(2))
KEPT: Final = StreamConfig(scaling=ScalingPolicy.fixed(2), retention=RetentionPolicy(size_bytes=1_000_000))

CHANGES: Final[Mapping[str, Callable[[int, int], AnyRequest]]] = MappingProxyType(
    {
        "update": lambda stream_id, version: UpdateStream("s/t", stream_id, KEPT, if_version=version),
        "scale": lambda stream_id, version: ScaleStream(
            "s/t",
            stream_id,
            (SegmentId(0),),
            (KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)),
            if_version=version,
        ),
        "truncate": lambda stream_id, version: TruncateStream(
            "s/t", stream_id, {SegmentId(0): 0, SegmentId(1): 0}, if_version=version
        ),
        "seal": lambda stream_id, version: SealStream("s/t", stream_id, if_version=version),
    }
)


@pytest.mark.parametrize("change", CHANGES)
async def test_change_on_a_stale_version_is_refused_and_changes_nothing(life: Life, change: str) -> None:
    await life.done(CreateStream("s/t", TWO))
    before = await life.record("s/t")
    stale = before.version + 1
    with pytest.raises(StaleVersion) as caught:
        await life.ep.requests.submit(CHANGES[change](before.value.stream_id, stale))
    assert (caught.value.stream, caught.value.expected, caught.value.present) == (
        "s/t",
        stale,
        before.version,
    )
    assert await life.record("s/t") == before


@pytest.mark.parametrize("change", ["update", "scale", "seal"])
async def test_change_on_the_present_version_makes_a_new_one(life: Life, change: str) -> None:
    await life.done(CreateStream("s/t", TWO))
    before = await life.record("s/t")
    await life.done(CHANGES[change](before.value.stream_id, before.version))
    assert (await life.record("s/t")).version > before.version


async def test_of_two_changes_on_one_version_the_second_is_refused_when_it_runs(life: Life) -> None:
    await life.done(CreateStream("s/t", TWO))
    before = await life.record("s/t")
    first = await life.ep.requests.submit(CHANGES["scale"](before.value.stream_id, before.version))
    second = await life.ep.requests.submit(CHANGES["update"](before.value.stream_id, before.version))
    await life.run()
    assert (await life.ep.requests.get(first.id)).status is RequestStatus.DONE
    refused = await life.ep.requests.get(second.id)
    assert isinstance(refused.error, StaleVersion)
    assert (refused.error.expected, refused.error.present) == (before.version, before.version + 1)
    assert (await life.record("s/t")).value.config == TWO


async def test_change_that_has_begun_ends_although_its_own_steps_make_versions(life: Life) -> None:
    txn_stream = await make_txn_stream(life)
    await txn_stream.begin(txn_id=TXN)
    await write(txn_stream, TXN, [(b"1", "k1")], identity=1)
    await txn_stream.commit(TXN)  # decided, so that the seal needs two steps
    before = await life.record(NAME)
    seal = await life.ep.requests.submit(SealStream(NAME, before.value.stream_id, if_version=before.version))
    owner, event = await life.claim(), await life.db.read(partial(event_of, seal.id))
    assert not await life.db.write(partial(step, request_id=seal.id, event=event, owner=owner))
    assert (await life.record(NAME)).version == before.version + 1
    await life.run()
    assert (await life.ep.requests.get(seal.id)).status is RequestStatus.DONE
    assert (await life.record(NAME)).value.state is StreamState.SEALED


@pytest.mark.acceptance("B17", differs="what could stop it is its deadline: no other request can")
async def test_request_that_has_begun_runs_to_its_end_after_its_deadline(life: Life) -> None:
    txn_stream = await make_txn_stream(life)
    await txn_stream.begin(txn_id=TXN)
    await write(txn_stream, TXN, [(b"1", "k1")], identity=1)
    await txn_stream.commit(TXN)
    stream_id = (await life.record(NAME)).value.stream_id
    seal = await life.ep.requests.submit(SealStream(NAME, stream_id), within_ms=HOUR_MS)
    owner, event = await life.claim(), await life.db.read(partial(event_of, seal.id))
    assert not await life.db.write(partial(step, request_id=seal.id, event=event, owner=owner))
    life.clock.advance(2 * HOUR_MS)
    await life.run()
    assert (await life.ep.requests.get(seal.id)).status is RequestStatus.DONE


async def test_delete_names_the_version_of_the_sealed_stream(life: Life) -> None:
    await life.done(CreateStream("s/t", TWO))
    made = await life.record("s/t")
    await life.done(SealStream("s/t", made.value.stream_id))
    with pytest.raises(StaleVersion):
        await life.ep.requests.submit(DeleteStream("s/t", made.value.stream_id, if_version=made.version))
    sealed = await life.record("s/t")
    await life.done(DeleteStream("s/t", made.value.stream_id, if_version=sealed.version))
