"""Errors about names that do not exist suggest similar names, and commands say whether they created something."""

from __future__ import annotations

import json

import pytest

from eventproc.base.counts import counted
from eventproc.cli.suggestions import NAMES_MAX
from tests.cli.conftest import Cli
from tests.cli.support import GROUP
from tests.cli.test_transactions import begin


@pytest.mark.parametrize(
    ("words", "suggestion", "listing"),
    [
        ("read shop/ordesr", "'shop/orders'", "eventproc stream list shop"),
        ("stream describe shpo/orders", "'shop'", "eventproc scope list"),
        ("scope delete shoop --yes", "'shop'", "eventproc scope list"),
        ("group lag shop/biling", "'shop/billing'", "eventproc group list shop"),
        ("processor describe shop/biling", "'shop/billing'", "eventproc group list shop"),
        ("stream split shop/orders 0.1", "'0.0'", "eventproc stream segments shop/orders"),
        ("read shop/orders --segment 0.1", "'0.0'", "eventproc stream segments shop/orders"),
        ("user describe an", "'ann'", "eventproc user list"),
        (f"group reset {GROUP} --checkpoint nigthly", "'nightly'", f"eventproc group checkpoints {GROUP}"),
    ],
)
def test_mistyped_name_is_answered_with_similar_ones_and_the_listing(
    billing: Cli, words: str, suggestion: str, listing: str
) -> None:
    billing("group", "checkpoint", GROUP, "nightly").ok()
    billing("user", "add", "ann", "--no-password").ok()
    why = billing(*words.split()).refused(3)
    assert f"; did you mean {suggestion}" in why
    assert why.endswith(f"? `{listing}` lists what exists\n")


def test_supervisors_and_their_groups_are_answered_with_what_exists(billing: Cli) -> None:
    spec = {"io": {"streams": ["shop/orders"]}, "schema": {"datasource": "clicks", "dimensions": ["page"]}}
    (billing.directory.parent / "clicks.json").write_text(json.dumps(spec))
    billing("supervisor", "submit", str(billing.directory.parent / "clicks.json")).ok()
    assert "did you mean 'clicks'? `eventproc supervisor list`" in billing(
        "supervisor", "status", "clickz"
    ).refused(3)
    assert billing("supervisor", "handoff", "clicks", "--group", "7").refused(3) == (
        "eventproc: no group '7' of supervisor clicks, which has no group that reads now;"
        " `eventproc supervisor status clicks` lists what exists\n"
    )
    for change in ("suspend", "resume", "terminate"):
        billing("supervisor", change, "clicks").ok()
    assert (
        billing("supervisor", "resume", "clicks")
        .refused(3)
        .endswith("`supervisor history clicks` shows it)\n")
    )
    versions = billing("supervisor", "history", "clicks", "--output", "json").json()
    assert [each["change"] for each in versions] == ["terminated", "resumed", "suspended", "submitted"]


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("group lag shop/work", "it is a share group: `eventproc share describe shop/work` shows it"),
        ("read --group shop/work", "it is a share group: `eventproc share describe shop/work` shows it"),
        (f"share describe {GROUP}", f"`eventproc group describe {GROUP}` shows it"),
        ("topic describe shop/orders", "`eventproc stream describe shop/orders` shows it"),
    ],
)
def test_a_name_of_another_kind_is_answered_with_its_kind(billing: Cli, words: str, note: str) -> None:
    billing("share", "create", "shop/work", "--stream", "shop/orders").ok()
    assert billing(*words.split()).refused(3).endswith(f"{note}\n")


def test_name_like_no_other_is_answered_with_the_listing_only(shop: Cli) -> None:
    assert shop("read", "shop/zz").refused(3) == (
        "eventproc: no stream 'shop/zz'; `eventproc stream list shop` lists what exists\n"
    )


@pytest.mark.parametrize(
    ("words", "listing"),
    [
        ("delayed show zz", "delayed list"),
        ("schedule show shop/zz", "schedule list"),
        ("task describe zz", "task list"),
        ("job show shop/mail zz", "job list shop/mail"),
    ],
)
def test_what_has_an_id_is_answered_with_its_listing(shop: Cli, words: str, listing: str) -> None:
    assert shop(*words.split()).refused(3).endswith(f"; `eventproc {listing}` lists what exists\n")


def test_job_for_a_share_group_that_does_not_exist_is_answered_with_what_makes_one(shop: Cli) -> None:
    assert shop("job", "submit", "shop/mail", "hello").refused(3) == (
        "eventproc: no share group 'shop/mail'; its worker creates it; or name the stream of the jobs; "
        "`eventproc share list shop` lists what exists\n"
    )


def test_sealed_segment_is_not_suggested_for_itself(shop: Cli) -> None:
    shop("stream", "split", "shop/orders", "0.0").ok()
    assert shop("stream", "split", "shop/orders", "0.0").refused(3) == (
        "eventproc: no segment '0.0' of shop/orders in epoch 1; `eventproc stream segments shop/orders` lists what "
        "exists\n"
    )


def test_mistyped_transaction_id_is_answered_with_the_similar_one(shop: Cli) -> None:
    txn_id = begin(shop, b"1\n")
    typed = txn_id[:-1] + ("0" if txn_id[-1] != "0" else "1")
    why = shop("txn", "describe", "shop/orders", typed).refused(3)
    assert f"did you mean {txn_id!r}?" in why
    assert "did you mean" not in shop("txn", "describe", "shop/orders", "abc").refused(3)


def test_names_that_are_compared_are_limited(shop: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert NAMES_MAX >= 1000
    shop("stream", "create", "shop/aaa").ok()
    monkeypatch.setattr("eventproc.cli.suggestions.NAMES_MAX", 1)
    assert "did you mean" not in shop("read", "shop/ordesr").refused(3)
    assert "'shop/aaa'" in shop("read", "shop/aab").refused(3)


@pytest.mark.subprocess
def test_reader_that_is_not_online_cannot_be_taken_offline(billing: Cli, as_reader: object) -> None:
    why = billing("group", "offline", GROUP, "r11").refused(3)
    assert f"no reader 'r11' of {GROUP}; did you mean 'r1'?" in why
    billing("group", "offline", GROUP, "r1").ok()


@pytest.mark.parametrize("words", ["list", "show", "redrive", "drop"])
def test_dead_letters_of_a_group_of_readers_are_refused(billing: Cli, words: str) -> None:
    arguments = {"list": (), "show": ("0.0:0",), "redrive": ("--all",), "drop": ("--all", "--yes")}[words]
    why = billing("dead-letter", words, GROUP, *arguments).refused(4)
    assert "belongs to readers" in why


@pytest.mark.parametrize(
    ("kind", "arguments", "name"),
    [
        ("scope", ("more",), "more"),
        ("stream", ("shop/more",), "shop/more"),
        ("group", ("audit", "--stream", "shop/orders"), "shop/audit"),
    ],
)
def test_create_says_whether_the_object_is_new(
    shop: Cli, kind: str, arguments: tuple[str, ...], name: str
) -> None:
    made = shop(kind, "create", *arguments)
    assert (made.code, made.err) == (0, f"created {kind} {name}\n")
    again = shop(kind, "create", *arguments)
    assert (again.code, again.err) == (0, f"{kind} {name} exists already\n")
    assert shop(kind, "create", *arguments, "-o", "json").json()["created"] is False


def test_create_says_in_json_that_the_object_is_new(shop: Cli) -> None:
    assert shop("scope", "create", "more", "-o", "json").json()["created"] is True
    assert shop("stream", "create", "more/a", "-o", "json").json()["created"] is True
    assert shop("group", "create", "more/g", "--stream", "more/a", "-o", "json").json()["created"] is True


def test_create_without_segments_accepts_an_existing_stream_as_it_is(shop: Cli) -> None:
    assert shop("stream", "create", "shop/orders", "-o", "json").json()["created"] is False
    assert len(shop("stream", "segments", "shop/orders", "-o", "json").json()) == 2
    assert "differs in scaling.segments_min" in shop(
        "stream", "create", "shop/orders", "--segments", 1
    ).refused(4)


def test_numbers_are_followed_by_singular_or_plural(shop: Cli) -> None:
    assert counted(1, "query", "queries") == "1 query"
    assert counted(0, "query", "queries") == "0 queries"
    assert counted(1200, "event") == "1,200 events"
    assert "has 1 stream and 0 groups;" in shop("scope", "delete", "shop", "--yes").refused(4)
