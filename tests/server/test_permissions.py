"""Patterns of names, and what a grant on one allows."""

from __future__ import annotations

import re
from fnmatch import translate

import pytest
from hypothesis import given, strategies as st

from eventproc.store.access.permissions import Permission, check_pattern, covers
from eventproc.store.model.errors import InvalidArgument

READ, READ_UPDATE = Permission.READ, Permission.READ_UPDATE
NAMES = st.text("ab.-_*", min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("pattern", "covered", "not_covered"),
    [
        ("*", ["*", "s", "s/t", "_system", "_system/t"], []),
        ("s", ["s"], ["*", "s/t", "st", "_s"]),
        ("s/t", ["s/t"], ["s", "s/tt", "ss/t", "s/t/x", "*"]),
        ("s/*", ["s/t", "s/u", "s/_RGx"], ["s", "ss/t", "s/t/x", "*"]),
        ("s*/t", ["s/t", "ss/t"], ["a/t", "s/u", "*"]),
        ("*/*", ["s/t", "a/b"], ["s", "_system/t", "*"]),
        ("s*", ["s", "shop"], ["s/t", "a", "*"]),
        ("a.c", ["a.c"], ["abc"]),
        ("s/a*b*c", ["s/abc", "s/a1b2c"], ["s/ac", "s/abcd"]),
    ],
)
def test_a_pattern_covers_names_and_a_wildcard_stays_within_its_name(
    pattern: str, covered: list[str], not_covered: list[str]
) -> None:
    assert check_pattern(pattern) == pattern
    assert {each: covers(pattern, each) for each in [*covered, *not_covered]} == {
        **dict.fromkeys(covered, True),
        **dict.fromkeys(not_covered, False),
    }


@pytest.mark.parametrize(
    "pattern", ["", "/", "s/", "/t", "s/t/u", "_system", "_system/*", "s t", "ä", "s/[t]", "a" * 600]
)
def test_what_is_no_pattern_is_refused_with_the_forms_that_are(pattern: str) -> None:
    with pytest.raises(InvalidArgument, match="SCOPE/NAME"):
        check_pattern(pattern)


@given(NAMES, NAMES)
def test_only_everything_covers_the_scopes_of_the_system(scope: str, name: str) -> None:
    assert covers(f"{scope}/{name}", "_system/t") is False
    assert covers(scope, "_system") is (scope == "*")


@given(NAMES, NAMES, NAMES, NAMES)
def test_a_pattern_covers_what_its_two_halves_match_as_globs(
    scope: str, name: str, of_scope: str, of_name: str
) -> None:
    resource = f"{scope.replace('_', 'a')}/{name}"
    expected = all(
        re.fullmatch(translate(pattern), text)
        for pattern, text in zip((of_scope, of_name), resource.split("/"), strict=True)
    )
    assert covers(f"{of_scope}/{of_name}", resource) is expected


def test_a_name_that_a_caller_makes_up_cannot_keep_the_server_busy() -> None:
    # Each wildcard more would multiply the time by the length, if all ways to match were tried.
    assert not covers("s/" + "*a" * 30 + "*b", "s/" + "a" * 400)
    assert covers("s/" + "*a" * 30 + "*b", "s/" + "a" * 400 + "b")
    assert not covers("s/*", "s/" + "a" * 1_000_000)
    assert covers("*", "s/" + "a" * 1_000_000)
