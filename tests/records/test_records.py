"""Versioned records on both forms of the database: of two replacements one succeeds, and the other gets the reason."""

from __future__ import annotations

from functools import partial

import attrs
import pytest

from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import (
    AlreadyExists,
    CorruptRecord,
    InvariantBroken,
    NotFound,
    Retryable,
    VersionConflict,
)
from eventproc.store.records import RecordKind, Versioned, create, delete, find, get, keys, replace
from eventproc.store.records.records import BODY_BYTES_MAX, CACHED_RECORDS_MAX, RecordCache
from tests.database.support import World


@attrs.frozen
class Account:
    """The value of a record kind that only this test defines."""

    owner: str
    balance: int = 0


ACCOUNT = RecordKind(
    name="test-account",
    value=Account,
    invariant=lambda before, after: (
        "an account keeps its owner" if before and before.owner != after.owner else None
    ),
)


def _open(tx: Tx, key: str = "a", owner: str = "Zoë 🚀") -> Versioned[Account]:
    return create(tx, ACCOUNT, key, Account(owner))


async def test_a_stored_record_is_read_back_with_version_one(db: Database) -> None:
    made = await db.write(_open)
    assert made == Versioned("a", 1, Account("Zoë 🚀"))
    assert await db.read(partial(get, kind=ACCOUNT, key="a")) == made
    assert await db.read(partial(find, kind=ACCOUNT, key="b")) is None


async def test_creating_an_existing_record_and_getting_a_missing_one_raise(db: Database) -> None:
    await db.write(_open)
    with pytest.raises(AlreadyExists):
        await db.write(_open)
    with pytest.raises(NotFound):
        await db.read(partial(get, kind=ACCOUNT, key="b"))


async def test_the_version_grows_by_one_and_a_stale_one_changes_nothing(db: Database) -> None:
    first = await db.write(_open)
    second = await db.write(partial(replace, kind=ACCOUNT, before=first, value=Account("Zoë 🚀", 5)))
    assert second.version == 2
    with pytest.raises(VersionConflict) as caught:
        await db.write(partial(replace, kind=ACCOUNT, before=first, value=Account("Zoë 🚀", 9)))
    assert (caught.value.expected, caught.value.actual) == (1, 2)
    assert isinstance(caught.value, Retryable)
    with pytest.raises(VersionConflict):
        await db.write(partial(delete, kind=ACCOUNT, before=first))
    assert await db.read(partial(get, kind=ACCOUNT, key="a")) == second


async def test_a_deleted_record_can_be_neither_replaced_nor_deleted(db: Database) -> None:
    first = await db.write(_open)
    await db.write(partial(delete, kind=ACCOUNT, before=first))
    with pytest.raises(NotFound):
        await db.write(partial(replace, kind=ACCOUNT, before=first, value=Account("Zoë 🚀", 9)))
    with pytest.raises(NotFound):
        await db.write(partial(delete, kind=ACCOUNT, before=first))


async def test_of_two_replacements_of_one_version_in_a_batch_one_succeeds(world: World) -> None:
    first = await world.db.write(_open)
    outcomes = await world.write_together(
        *(partial(replace, kind=ACCOUNT, before=first, value=Account("Zoë 🚀", each)) for each in (1, 2, 3))
    )
    winners = [outcome for outcome in outcomes if isinstance(outcome, Versioned)]
    losers = [outcome for outcome in outcomes if isinstance(outcome, VersionConflict)]
    assert (len(winners), len(losers)) == (1, 2)
    assert await world.db.read(partial(get, kind=ACCOUNT, key="a")) == winners[0]


async def test_an_invariant_refuses_the_change(db: Database) -> None:
    first = await db.write(_open)
    with pytest.raises(InvariantBroken, match="keeps its owner"):
        await db.write(partial(replace, kind=ACCOUNT, before=first, value=Account("Eve")))
    assert await db.read(partial(get, kind=ACCOUNT, key="a")) == first


async def test_keys_are_listed_by_prefix_in_order_and_in_pages(db: Database) -> None:
    def make(tx: Tx) -> None:
        for key in ("b", "a/2", "a/1", "a", "a0", "ab/1"):
            _open(tx, key)

    await db.write(make)
    assert await db.read(partial(keys, kind=ACCOUNT)) == ["a", "a/1", "a/2", "a0", "ab/1", "b"]
    assert await db.read(partial(keys, kind=ACCOUNT, prefix="a/")) == ["a/1", "a/2"]
    assert await db.read(partial(keys, kind=ACCOUNT, prefix="a", after="a/1", limit=2)) == ["a/2", "a0"]


async def test_an_older_format_is_upcast_step_by_step_and_a_newer_one_is_refused(db: Database) -> None:
    newer = RecordKind(
        name=ACCOUNT.name,
        value=Account,
        format=3,
        upcasts={
            1: lambda plain: {**plain, "owner": f"{plain['owner']}!"},
            2: lambda plain: {**plain, "balance": 7},
        },
    )
    await db.write(_open)
    found = await db.read(partial(get, kind=newer, key="a"))
    assert found.value == Account("Zoë 🚀!", 7)
    replaced = await db.write(partial(replace, kind=newer, before=found, value=found.value))
    assert replaced.version == 2
    with pytest.raises(CorruptRecord, match="format 3 is newer"):
        await db.read(partial(get, kind=ACCOUNT, key="a"))


@pytest.mark.parametrize(
    "body", [b"", b"1:", b"1:[]", b"x:{}", b'1:{"owner":"a","what":1}', b"1:{}", b"\xff:{}"]
)
async def test_bytes_that_are_no_record_raise_corrupt_record(db: Database, body: bytes) -> None:
    await db.write(_open)
    await db.write(
        lambda tx: tx.execute("UPDATE record SET body = ? WHERE kind = 'test-account'", (body,)).rowcount
    )
    with pytest.raises(CorruptRecord, match="test-account a"):
        await db.read(partial(get, kind=ACCOUNT, key="a"))


async def test_an_immutable_value_is_decoded_once_while_its_body_stays_equal(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = RecordKind(name="test-account", value=Account, immutable=True)
    decoded: list[bytes] = []
    decode = RecordKind.decode

    def counting(self: RecordKind[Account], key: str, body: bytes) -> Account:
        decoded.append(body)
        return decode(self, key, body)

    monkeypatch.setattr(RecordKind, "decode", counting)
    made = await db.write(partial(create, kind=kind, key="a", value=Account("Zoë 🚀")))
    assert await db.write(partial(get, kind=kind, key="a")) == made
    assert not decoded
    # As another process would do, without this process noticing.
    other = kind.encode(Account("Zoë 🚀", 7))
    await db.write(lambda tx: tx.execute("UPDATE record SET version = 2, body = ?", (other,)).rowcount)
    for _ in range(2):
        assert await db.write(partial(get, kind=kind, key="a")) == Versioned("a", 2, Account("Zoë 🚀", 7))
    assert decoded == [other]


async def test_a_value_whose_transaction_was_rolled_back_is_not_found(db: Database) -> None:
    kind = RecordKind(name="test-account", value=Account, immutable=True)
    made = await db.write(partial(create, kind=kind, key="a", value=Account("Zoë 🚀")))

    def fail(tx: Tx) -> None:
        replace(tx, kind, made, Account("Zoë 🚀", 9))
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        await db.write(fail)
    assert await db.write(partial(get, kind=kind, key="a")) == made


def test_the_oldest_values_are_evicted_first() -> None:
    known = RecordCache()
    for number in range(CACHED_RECORDS_MAX + 1):
        known.keep("kind", str(number), b"%d" % number, number)
    known.keep("kind", "1", b"new", -1)
    assert known.find("kind", "0", b"0") is None
    assert known.find("kind", "1", b"1") is None
    assert known.find("kind", "1", b"new") == -1
    assert known.find("kind", str(CACHED_RECORDS_MAX), b"%d" % CACHED_RECORDS_MAX) == CACHED_RECORDS_MAX


def test_a_long_body_is_not_cached_and_evicts_the_older_one() -> None:
    known, long = RecordCache(), bytes(BODY_BYTES_MAX + 1)
    known.keep("kind", "a", b"short", 1)
    known.keep("kind", "a", long, 2)
    assert known.find("kind", "a", b"short") is None
    assert known.find("kind", "a", long) is None
