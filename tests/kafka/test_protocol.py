"""What clients rarely do, in bytes: repeated and missing batches, batches that are wrong, and frames of no client."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from random import Random

import anyio
import cramjam
import crc32c
import httpx
import psutil
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from eventproc import CompactionPolicy
from eventproc.base.clock import SystemClock
from eventproc.runtime import Eventproc
from eventproc.testing.crash import PATIENCE_S
from tests.kafka.admin_versions import speak_administration
from tests.kafka.group_peer import GROUP_CALLS
from tests.kafka.peer import (
    HEAD,
    PLAIN_BATCH,
    KafkaPeer,
    answer_of,
    batch_of,
    framed,
    to_produce,
)
from tests.kafka.transaction_peer import TRANSACTION_CALLS
from tests.server.support import ServerProcess

pytestmark = pytest.mark.subprocess


def altered(batch: bytes, at: int, value: bytes) -> bytes:
    """Return a batch with other bytes at a place, and the right checksum."""
    changed = bytearray(batch)
    changed[at : at + len(value)] = value
    return sealed(changed)


def sealed(batch: bytearray) -> bytes:
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[17:21] = crc32c.crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return bytes(batch)


@pytest.fixture
def peer(server: ServerProcess) -> Iterator[KafkaPeer]:
    with KafkaPeer(server.kafka) as peer:
        yield peer


async def test_a_repeated_batch_is_answered_with_its_offset_and_is_not_stored_again(
    peer: KafkaPeer, server: ServerProcess, topic: str
) -> None:
    first, second = batch_of(b"a", b"b", producer=(5, 0), first=0), batch_of(b"c", producer=(5, 0), first=2)
    assert peer.produce(topic, first) == (0, 0)
    assert peer.produce(topic, second) == (0, 2)
    assert peer.produce(topic, first) == (0, 0)
    with KafkaPeer(server.kafka) as other:
        assert other.produce(topic, second) == (0, 2)
    assert peer.fetch(topic, 3)[:2] == (0, 3)


async def test_another_server_knows_repeated_batches_and_the_offset_of_the_last_one(
    peer: KafkaPeer, ep: Eventproc, topic: str
) -> None:
    first, second = batch_of(b"a", producer=(5, 0), first=0), batch_of(b"b", b"c", producer=(5, 0), first=1)
    assert peer.produce(topic, first) == (0, 0)
    assert peer.produce(topic, batch_of(b"from another one")) == (0, 1)
    assert peer.produce(topic, second) == (0, 2)
    with ServerProcess(ep.path or "", kafka_scope="shop") as server, KafkaPeer(server.kafka) as other:
        assert other.produce(topic, first) == (46, -1)
        assert other.produce(topic, second) == (0, 2)
        assert other.produce(topic, batch_of(b"b", producer=(5, 0), first=1)) == (46, -1)
        assert other.produce(topic, batch_of(b"d", producer=(5, 0), first=3)) == (0, 4)
        assert peer.fetch(topic, 5)[:2] == (0, 5)


async def test_a_batch_behind_a_gap_or_of_an_old_epoch_is_refused(peer: KafkaPeer, topic: str) -> None:
    assert peer.produce(topic, batch_of(b"a", producer=(6, 1), first=0)) == (0, 0)
    assert peer.produce(topic, batch_of(b"c", producer=(6, 1), first=2)) == (45, -1)
    assert peer.produce(topic, batch_of(b"old", producer=(6, 0), first=1)) == (47, -1)
    assert peer.produce(topic, batch_of(b"new", producer=(6, 2), first=0)) == (0, 1)
    assert peer.fetch(topic, 2)[:2] == (0, 2)


async def test_a_producer_whose_first_records_are_given_up_goes_on_without_them(
    peer: KafkaPeer, topic: str
) -> None:
    def produce(first: int, *values: bytes) -> tuple[int, int]:
        return peer.produce(topic, batch_of(*values, producer=(7, 0), first=first))

    assert produce(3, b"d", b"e") == (0, 0)
    assert produce(3, b"d", b"e") == (0, 0)
    assert produce(0, b"a", b"b") == (45, -1)
    assert produce(2, b"c", b"d") == (45, -1)
    assert produce(6, b"g") == (45, -1)
    assert produce(5, b"f") == (0, 2)
    assert peer.fetch(topic, 3)[:2] == (0, 3)


async def test_a_producer_whose_first_batch_is_refused_for_now_does_not_begin_behind_it(
    peer: KafkaPeer, ep: Eventproc, topic: str
) -> None:
    name = f"{topic}-later"
    first, second = batch_of(b"a", producer=(8, 0), first=0), batch_of(b"b", producer=(8, 0), first=1)
    assert peer.produce(name, first) == (3, -1)
    await ep.create_topic(f"shop/{name}")
    assert peer.produce(name, second) == (45, -1)
    assert peer.produce(name, first) == (0, 0)
    assert peer.produce(name, second) == (0, 1)


async def test_each_producer_gets_an_identity_of_its_own_and_the_next_epoch_of_the_one_that_it_has(
    peer: KafkaPeer,
) -> None:
    def ask(producer_id: int, epoch: int, transactional_id: str | None = None) -> tuple[int, int, int]:
        found = peer.ask(
            "InitProducerId",
            4,
            transactional_id=transactional_id,
            transaction_timeout_ms=1,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        return found.error_code, found.producer_id, found.producer_epoch

    one, two = ask(-1, -1), ask(-1, -1)
    assert (one[0], one[2]) == (0, 0)
    assert one[1] != two[1]
    assert ask(one[1], 0) == (0, one[1], 1)
    for wrong in ("", "a\0b"):
        assert ask(-1, -1, wrong) == (42, -1, -1)


WRONG_BATCHES = {
    "empty": (b"", 2),
    "short": (PLAIN_BATCH[:40], 2),
    "checksum": (PLAIN_BATCH[:-1] + b"?", 2),
    "old format": (PLAIN_BATCH[:16] + b"\1" + PLAIN_BATCH[17:], 43),
    "two batches": (PLAIN_BATCH + PLAIN_BATCH, 87),
    "control": (altered(PLAIN_BATCH, 21, b"\0\x20"), 87),
    "transactional": (altered(PLAIN_BATCH, 21, b"\0\x10"), 87),
    "no records": (altered(altered(PLAIN_BATCH, 57, bytes(4)), 23, b"\xff" * 4), 87),
    "fewer records": (altered(altered(PLAIN_BATCH, 57, b"\0\0\0\1"), 23, bytes(4)), 2),
    "unknown compression": (altered(PLAIN_BATCH, 21, b"\0\6"), 2),
    "not compressed": (altered(PLAIN_BATCH, 21, b"\0\4"), 2),
    "no epoch": (batch_of(b"a", producer=(5, -1), first=0), 87),
    "no numbers": (batch_of(b"a", producer=(5, 0), first=-1), 87),
    "large": (batch_of(*[bytes(2**20)] * 9), 10),
    "long key": (batch_of(b"a", key=b"k" * 1_025), 87),
}


@pytest.mark.parametrize("name", WRONG_BATCHES)
async def test_a_wrong_batch_is_refused_with_its_code_and_the_connection_goes_on(
    name: str, peer: KafkaPeer, topic: str
) -> None:
    batch, code = WRONG_BATCHES[name]
    assert peer.produce(topic, batch) == (code, -1)
    assert peer.produce(topic, PLAIN_BATCH) == (0, 0)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_a_small_batch_that_stands_for_a_gigabyte_is_refused_within_bounded_memory(
    codec: str, peer: KafkaPeer, server: ServerProcess, topic: str
) -> None:
    zeros = bytes(2**30 if codec != "snappy" else 2**26)
    match codec:
        case "gzip":
            number, small = 1, zlib.compress(zeros, 1, wbits=31)
        case "snappy":
            number, small = 2, bytes(cramjam.snappy.compress_raw(zeros))
        case "lz4":
            number, small = 3, bytes(cramjam.lz4.compress(zeros))
        case _:
            number, small = 4, bytes(cramjam.zstd.compress(zeros))
    batch = sealed(bytearray(altered(PLAIN_BATCH, 21, bytes((0, number)))[:61] + small))
    process = psutil.Process(server.pid)
    before = process.memory_info().rss
    assert peer.produce(topic, batch) == (10, -1)
    assert process.memory_info().rss - before < 64 * 2**20


async def test_an_unknown_topic_or_partition_is_refused(peer: KafkaPeer, topic: str) -> None:
    assert peer.produce("absent", PLAIN_BATCH) == (3, -1)
    assert peer.produce("shop/absent", PLAIN_BATCH) == (3, -1)
    assert peer.produce(topic, PLAIN_BATCH, partition=4) == (3, -1)
    assert peer.fetch("absent", 0) == (3, -1, b"")


async def test_what_the_batches_of_a_request_become_is_bounded_together(
    peer: KafkaPeer, server: ServerProcess, topic: str
) -> None:
    small = bytes(cramjam.zstd.compress(bytes(8 * 2**20)))
    bomb = sealed(bytearray(altered(PLAIN_BATCH, 21, b"\0\4")[:61] + small))
    process = psutil.Process(server.pid)
    before = process.memory_info().rss
    answers = peer.ask("Produce", 9, **to_produce(topic, *[bomb] * 1_000)).responses[0].partition_responses
    assert {each.error_code for each in answers[3:]} == {10}
    assert process.memory_info().rss - before < 128 * 2**20


async def test_many_batches_of_a_request_are_appended_in_linear_time(peer: KafkaPeer, topic: str) -> None:
    batches = [batch_of(b"a", producer=(9, 0), first=each) for each in range(5_000)]
    answers = peer.ask("Produce", 9, **to_produce(topic, *batches)).responses[0].partition_responses
    assert [each.base_offset for each in answers] == list(range(5_000))


async def test_batches_that_want_no_answer_are_stored_although_their_producer_leaves(
    server: ServerProcess, ep: Eventproc, topic: str
) -> None:
    batch = batch_of(*[bytes(1_000)] * 100)
    with KafkaPeer(server.kafka) as peer:
        for _ in range(20):
            peer.send(framed("Produce", 9, **to_produce(topic, batch, acks=0)))
    async with (await ep.topic(f"shop/{topic}")).reader() as reader:
        with anyio.fail_after(PATIENCE_S):
            count = 0
            async for _ in reader:
                count += 1
                if count == 2_000:
                    break


async def test_a_refused_batch_that_wants_no_answer_ends_the_connection(peer: KafkaPeer, topic: str) -> None:
    peer.send(framed("Produce", 9, **to_produce(topic, PLAIN_BATCH)))
    peer.send(framed("Produce", 9, **to_produce("absent", PLAIN_BATCH, acks=0)))
    assert peer.take() != b""  # the answer to the batch before it
    assert peer.take() == b""


async def test_names_that_no_topic_can_have_are_invalid(peer: KafkaPeer) -> None:
    names = [{"name": each} for each in ("a/b", "", "a/b")]
    topics = peer.ask("Metadata", 9, topics=names).topics
    assert [(each.name, each.error_code) for each in topics] == [("a/b", 17), ("", 17)]


async def test_a_request_that_names_more_than_the_bound_ends_its_connection(peer: KafkaPeer) -> None:
    peer.send(framed("Metadata", 9, topics=[{"name": "t"}] * 5_001))
    assert peer.take() == b""


async def test_an_offset_outside_of_the_topic_is_out_of_range(peer: KafkaPeer, topic: str) -> None:
    peer.produce(topic, PLAIN_BATCH)
    assert peer.fetch(topic, 2) == (0, 2, b"")
    assert peer.fetch(topic, 3) == (1, 2, b"")


async def test_a_consumer_passes_a_range_of_which_a_compaction_has_left_nothing(
    peer: KafkaPeer, ep: Eventproc, topic: str
) -> None:
    compacted = await ep.create_topic(f"shop/{topic}-c", compaction=CompactionPolicy(min_age_ms=0))
    async with compacted.writer() as writer:
        for value in (b"1", b"2", b"3"):
            await writer.write(value, key="k")
    await compacted.compact()
    code, end, records = peer.fetch(f"{topic}-c", 0)
    assert (code, end) == (0, 3)
    first, last, count = struct.unpack_from(">q", records)[0], records[23:27], records[57:61]
    assert (first, int.from_bytes(last, "big"), int.from_bytes(count, "big")) == (0, 2, 1)


@pytest.mark.parametrize("time_ms", [-1, -5])
async def test_a_record_without_a_time_or_before_1970_shows_when_it_was_appended(
    peer: KafkaPeer, topic: str, time_ms: int
) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**20)
    builder.append(0, time_ms, b"k", b"v", [])
    begun_ms = SystemClock().wall_ms()
    assert peer.produce(topic, bytes(builder.build()))[0] == 0
    _, _, records = peer.fetch(topic, 0)
    assert [each.timestamp >= begun_ms for each in DefaultRecordBatch(records)] == [True]


async def test_a_client_that_is_too_new_is_told_the_versions(peer: KafkaPeer) -> None:
    peer.send(struct.pack(">i", 11) + HEAD.pack(18, 99, 7, 1) + b"p")
    found = answer_of("ApiVersions", 0, peer.take())
    assert found.error_code == 35
    assert {each.api_key for each in found.api_keys} >= {0, 1, 3, 18}


async def test_frames_of_no_client_end_their_connection_and_hold_no_memory(
    server: ServerProcess, topic: str
) -> None:
    random = Random(7)
    valid = framed("ApiVersions", 0)
    process = psutil.Process(server.pid)
    before = process.memory_info().rss
    for number in range(300):
        with KafkaPeer(server.kafka) as peer:
            match number % 4:
                case 0:
                    frame = random.randbytes(random.randrange(4, 200))
                case 1:
                    frame = struct.pack(">i", 2**31 - 1 - number) + os.urandom(100)
                case 2:
                    changed = bytearray(valid)
                    changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
                    frame = bytes(changed)
                case _:
                    body = HEAD.pack(random.randrange(62), random.randrange(10), 7, 0)
                    body += random.randbytes(random.randrange(60))
                    frame = struct.pack(">i", len(body)) + body
            peer.send(frame)
    with KafkaPeer(server.kafka) as peer:
        assert peer.ask("ApiVersions", 0).error_code == 0
    assert process.memory_info().rss - before < 64 * 2**20


async def test_peers_that_leave_before_their_answers_hold_no_memory(ep: Eventproc, topic: str) -> None:
    large = framed("Produce", 9, **to_produce(topic, batch_of(*[bytes(1_000)] * 1_000)))
    with ServerProcess(ep.path or "", rest=True, kafka_scope="shop") as server:
        for _ in range(30):
            with KafkaPeer(server.kafka) as peer:
                peer.send(large * 3)
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            with anyio.fail_after(PATIENCE_S):
                while True:
                    text = (await client.get(f"{server.rest}/metrics")).text
                    if "\neventproc_kafka_connections 0.0\n" in text:
                        break
        assert "\neventproc_kafka_connection_bytes 0.0\n" in text


async def test_a_frame_that_is_too_large_ends_its_connection(peer: KafkaPeer) -> None:
    peer.send(struct.pack(">i", 2**30))
    assert peer.take() == b""


@pytest.mark.parametrize("version", range(3))
async def test_old_versions_of_produce_are_announced_for_old_clients_and_end_the_connection(
    server: ServerProcess, peer: KafkaPeer, topic: str, version: int
) -> None:
    assert peer.announced()[0].start == 0
    with KafkaPeer(server.kafka) as other:
        request = framed("Produce", 3, **to_produce(topic, PLAIN_BATCH))
        other.send(request[:6] + bytes([0, version]) + request[8:])
        assert other.take() == b""
    assert peer.fetch(topic, 0)[1] == 0


async def test_each_call_is_answered_in_each_version_that_is_announced(
    server: ServerProcess, peer: KafkaPeer, topic: str
) -> None:
    versions = peer.announced()
    for version in versions.pop(18):
        software = {"client_software_name": "a", "client_software_version": "1"}
        assert peer.ask("ApiVersions", version, **software).error_code == 0
    for version in versions.pop(0)[3:]:
        assert peer.produce(topic, PLAIN_BATCH, version=version)[0] == 0
    end = peer.fetch(topic, 0)[1]
    for version in versions.pop(1):
        code, _, records = peer.fetch(topic, 0, version)
        assert (code, len(records)) == (0, end // 2 * len(PLAIN_BATCH))
    for version in versions.pop(2):
        wanted = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        offsets = peer.ask("ListOffsets", version, topics=wanted).topics
        assert offsets[0].partitions[0].offset == end
    for version in versions.pop(3):
        topics = peer.ask("Metadata", version, topics=[{"name": topic}]).topics
        assert [(each.name, len(each.partitions)) for each in topics] == [(topic, 1)]
    for version in versions.pop(17):
        with KafkaPeer(server.kafka) as other:
            assert other.ask("SaslHandshake", version, mechanism="PLAIN").error_code == 0
    for version in versions.pop(22):
        found = peer.ask("InitProducerId", version, transactional_id=None, transaction_timeout_ms=1)
        assert found.error_code == 0
    for version in versions.pop(36):
        found = peer.ask("SaslAuthenticate", version, auth_bytes=b"\0anyone\0anything")
        assert found.error_code == 0  # there are no users
    speak_administration(peer, versions)
    # test_group_protocol.py and test_transaction_protocol.py ask these.
    assert versions.keys() == GROUP_CALLS | TRANSACTION_CALLS
