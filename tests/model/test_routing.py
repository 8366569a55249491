"""Routing keys to points, as Pravega's clients compute them."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, strategies as st

from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import KEY_CHARS_MAX
from eventproc.store.model.routing import BYTES_PREFIX, check_key, key_bytes, key_text, point, points

VECTORS = {
    "": 0.24117842791623523,
    "a": 0.9433912753816884,
    "customer-42": 0.48895806046023726,
    "N14228": 0.011814413523655087,
    "日本語": 0.33619521178203393,
    "🚀key": 0.27628041813296855,
}
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
MASK = 2**64 - 1


def murmur3_x64_128_first_half(data: bytes, seed: int) -> int:
    """MurmurHash3 as published, for x64 and 128 bits; the first 64 of them, unsigned."""

    def rotate(value: int, bits: int) -> int:
        return (value << bits | value >> (64 - bits)) & MASK

    def mix(value: int) -> int:
        value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & MASK
        value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & MASK
        return value ^ value >> 33

    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    h1 = h2 = seed
    body, tail = divmod(len(data), 16)
    for start in range(0, body * 16, 16):
        k1 = int.from_bytes(data[start : start + 8], "little")
        k2 = int.from_bytes(data[start + 8 : start + 16], "little")
        h1 ^= rotate(k1 * c1 & MASK, 31) * c2 & MASK
        h1 = ((rotate(h1, 27) + h2) * 5 + 0x52DCE729) & MASK
        h2 ^= rotate(k2 * c2 & MASK, 33) * c1 & MASK
        h2 = ((rotate(h2, 31) + h1) * 5 + 0x38495AB5) & MASK
    rest = data[len(data) - tail :]
    h2 ^= rotate(int.from_bytes(rest[8:], "little") * c2 & MASK, 33) * c1 & MASK
    h1 ^= rotate(int.from_bytes(rest[:8], "little") * c1 & MASK, 31) * c2 & MASK
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & MASK
    h2 = (h2 + h1) & MASK
    return (mix(h1) + mix(h2)) & MASK


@pytest.mark.parametrize("key, expected", VECTORS.items())
def test_a_key_lies_where_the_other_clients_put_it(key: str, expected: float) -> None:
    assert point(key) == expected


@given(KEYS)
def test_a_position_is_the_published_hash_as_a_fraction(key: str) -> None:
    hashed = murmur3_x64_128_first_half(key.encode("utf-16-le"), 1741865571)
    assert point(key) == (hashed >> 12) / 2**52


@given(st.lists(st.none() | KEYS))
def test_positions_of_many_keys_are_those_of_each(keys: list[str | None]) -> None:
    assert points(keys) == [None if key is None else point(key) for key in keys]


@pytest.mark.parametrize("key", ["\ud800", "a\udc00b", "\udc00\ud800", "k" * (KEY_CHARS_MAX + 1)])
def test_a_key_that_cannot_route_is_refused_wherever_it_stands(key: str) -> None:
    for attempt in (lambda: check_key(key), lambda: point(key), lambda: points(["fine", None, key])):
        with pytest.raises(InvalidArgument) as refusal:
            attempt()
        assert refusal.value.what == "routing key"
        str(refusal.value).encode()  # the message can be printed
        assert str(pickle.loads(pickle.dumps(refusal.value))) == str(refusal.value)


def test_the_longest_key_and_the_empty_one_route() -> None:
    longest = "🚀" * KEY_CHARS_MAX
    assert (check_key(longest), check_key("")) == (longest, "")
    assert points([longest]) == [point(longest)]


@given(st.binary() | KEYS.map(str.encode) | st.binary().map(lambda key: key_text(b"\xff" + key).encode()))
def test_each_sequence_of_bytes_is_one_key(key: bytes) -> None:
    assert key_bytes(key_text(key)) == key
    assert key_text(key).startswith(BYTES_PREFIX) or key_text(key).encode() == key


@given(KEYS | st.binary().map(lambda key: key_text(b"\xff" + key)) | KEYS.map(BYTES_PREFIX.__add__))
def test_each_text_is_the_key_of_its_bytes(text: str) -> None:
    assert key_text(key_bytes(text)) == text


@pytest.mark.parametrize("text", ["YQ==", "/w=", "/x==", "/w==\n", "é", "=", ""])
def test_text_that_only_looks_like_a_data_url_is_a_text(text: str) -> None:
    assert key_bytes(BYTES_PREFIX + text) == (BYTES_PREFIX + text).encode()


def test_bytes_that_are_too_long_as_text_are_refused() -> None:
    longest = b"\xff" * 756
    assert check_key(longest) == key_text(longest)
    with pytest.raises(InvalidArgument, match="at most 1024"):
        check_key(b"\xff" + longest)
