"""`eventproc state`: show, export, import and drop what processors keep by key."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import click

import eventproc
from eventproc.base.counts import counted
from eventproc.cli.input.json_documents import no_constant
from eventproc.cli.options import Settings, group_argument, limit_option, pass_settings
from eventproc.cli.output.events import payload_field, put_text
from eventproc.cli.output.tables import Row
from eventproc.cli.verbs import Noun, rows_of_pages

if TYPE_CHECKING:
    from eventproc.cli.input.lines import InputLines
    from eventproc.describe import KeyValue
    from eventproc.runtime import Eventproc

KEYS_A_PAGE: Final = 100
"""States that are read together, unless they are large. Higher: more memory. Lower: more queries."""

KEYS_A_STEP: Final = 1_000
"""States that are stored together. Higher: a longer transaction. Lower: more syncs."""

BYTES_A_STEP: Final = 4 * 2**20
"""Bytes of values, the same."""

TIMES: Final = ("expires_ms", "timer_ms")

VALUES: Final = ("value", "value_text", "value_base64")
"""The forms of a value: JSON, if it makes the same bytes again; any other text; other bytes."""


@click.group(cls=Noun)
def state() -> None:
    """Show, export, import and drop what processors keep by key: `App.processor(state=...)`.

    Examples:
        eventproc state show shop/totals
        eventproc state show shop/totals customer-42
        eventproc state export shop/totals > totals.jsonl
    """


def _for_people(row: Row) -> Row:
    if "states" in row:
        states = row["states"]
        assert isinstance(states, list), "a page has states"
        return {**row, "states": [_for_people(each) for each in states]}
    shown = {name: each for name, each in row.items() if name not in VALUES}
    ((form, value),) = ((name, row[name]) for name in VALUES if name in row)
    text = _json(value) if form == "value" else value if form == "value_text" else f"base64:{value}"
    return {"key": shown.pop("key"), "value": text, **shown}


@state.shows(tables={"states": ["key", "value", "version", "expires_ms", "timer_ms"]}, people=_for_people)
@group_argument
@click.argument("key", metavar="[KEY]", required=False)
@click.option("--first", metavar="KEY", help="List keys from this one on.")
@click.option("--last", metavar="KEY", help="List keys before this one.")
@click.option("--after", metavar="KEY", help="List keys after this one: the last one of the previous page.")
@limit_option(100)
async def show(
    ep: Eventproc,
    name: str,
    key: str | None,
    first: str | None,
    last: str | None,
    after: str | None,
    limit: int,
) -> Row:
    """Show the state of a key; or how many keys have one, and some of them, in the order of the keys.

    Examples:
        eventproc state show shop/totals customer-42
        eventproc state show shop/totals --first customer-4 --last customer-5 --limit 20
    """
    states = ep.state(name)
    if key is None:
        read = partial(states.list, first=first, last=last)
        rows = await rows_of_pages(read, _row_of, "key", after=after, limit=limit)
        return {**eventproc.to_dict(await states.describe()), "states": rows}
    from eventproc.errors import NotFound

    if (first, last, after) != (None, None, None):
        raise click.UsageError("the key says what to show: leave --first, --last and --after out")
    found = await states.find(key)
    if found is None:
        raise NotFound(kind=f"state of {name}", name=key)
    return _row_of(found)


@state.command()
@group_argument
@pass_settings
def export(settings: Settings, name: str) -> None:
    """Print all states as JSON lines, in the order of the keys, for `state import`.

    A line has key, version, expires_ms, timer_ms, and the value as JSON. A value whose bytes JSON would change is
    value_text or value_base64 instead. Each 100 lines, or 4 MiB, are as of one moment; pause the processor to have all
    of the same one.

    Examples:
        eventproc state export shop/totals > totals.jsonl
    """
    from eventproc.cli import session

    session.run(settings, partial(_export, name=name))


async def _export(ep: Eventproc, name: str) -> None:
    states, after = ep.state(name), None
    while page := await states.list(after=after, limit=KEYS_A_PAGE):
        put_text("".join(f"{_json(_row_of(each))}\n" for each in page))
        after = page[-1].key


@state.does(lambda row: f"imported {counted(_count(row), 'state')} of {row['target']}")
@group_argument
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default="-")
async def import_(ep: Eventproc, name: str, file: str) -> Row:
    """Store what `state export` printed, while the processor does not run. The states of other keys stay.

    A line that has no version or no expires_ms gets version 1, and never expires. A repeated import changes nothing
    more; one that failed has stored some lines, and may be repeated.

    Examples:
        eventproc state import shop/totals totals.jsonl
        eventproc -C old state export shop/totals | eventproc -C new state import shop/totals
    """
    from anyio import to_thread

    from eventproc.cli.input.lines import InputLines, open_input

    states, keys = ep.state(name), 0
    with open_input(file) as source:
        found = _states_in(InputLines(source))

        def take() -> list[KeyValue[bytes]]:
            taken: list[KeyValue[bytes]] = []
            size_bytes = 0
            while len(taken) < KEYS_A_STEP and size_bytes < BYTES_A_STEP and (each := next(found, None)):
                taken.append(each)
                size_bytes += len(each.value)
            return taken

        # In a thread: standard input may block.
        while some := await to_thread.run_sync(take, abandon_on_cancel=True):
            await states.restore(some)
            keys += len(some)
    return {"keys": keys}


async def _losses(ep: Eventproc, name: str, keys: tuple[str, ...]) -> Row:
    states, readers = ep.state(name), len((await (await ep.group(name)).describe()).members)
    info = await states.describe()
    if not keys:
        return {"readers": readers, "keys": info.keys, "bytes": info.value_bytes}
    values = [value for key in dict.fromkeys(keys) if (value := await states.get(key)) is not None]
    return {"readers": readers, "keys": len(values), "bytes": sum(map(len, values))}


@state.does(
    lambda row: f"dropped {counted(_count(row), 'state')} of {row['target']}",
    consent="Drop states of {name}",
    losses=_losses,
)
@group_argument
@click.argument("keys", metavar="[KEY]...", nargs=-1)
async def drop(ep: Eventproc, name: str, keys: tuple[str, ...]) -> Row:
    """Delete the states of these keys, or of all, while the processor does not run.

    Examples:
        eventproc state drop shop/totals --dry-run
        eventproc state drop shop/totals customer-42 --yes
    """
    return {"keys": await ep.state(name).drop(keys or None)}


def _count(row: Row) -> int:
    count = row["keys"]
    assert isinstance(count, int), "a change says how many"
    return count


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _row_of(found: KeyValue[bytes]) -> dict[str, object]:
    row = {"key": found.key, **_value_field(found.value)}
    return row | {"version": found.version, "expires_ms": found.expires_ms, "timer_ms": found.timer_ms}


def _value_field(value: bytes) -> dict[str, object]:
    """Return the field that shows a value, which gives the same bytes again."""
    try:
        found = json.loads(value, parse_constant=no_constant)
        if _json(found).encode() == value:
            return {"value": found}
    except (ValueError, RecursionError):  # no JSON, or too deep for a decoder
        pass
    return {**payload_field(value, *VALUES[1:])}


def _states_in(lines: InputLines) -> Iterator[KeyValue[bytes]]:
    """Yield the states of an export. Raises click.ClickException for a line that is none, with its number."""
    from eventproc.cli.input.lines import bad_row

    for line in lines:
        if not line.strip():
            continue
        try:
            yield _state_of(json.loads(line, parse_constant=no_constant))
        except (ValueError, RecursionError) as why:
            what = "not JSON: " if isinstance(why, json.JSONDecodeError) else ""
            raise bad_row(lines, lines.number, f"{what}{why}; the lines before it may be stored") from None


def _state_of(row: object) -> KeyValue[bytes]:
    """Return the state of a line. Raises ValueError."""
    from eventproc.describe import KeyValue

    if not isinstance(row, dict) or not isinstance(row.get("key"), str):
        raise ValueError("it must be an object with a key")
    if unknown := row.keys() - {"key", "version", *TIMES, *VALUES}:
        raise ValueError(f"unknown field {min(unknown)!r}")
    forms = [name for name in VALUES if name in row]
    if len(forms) != 1:
        raise ValueError(f"it must have one of {', '.join(VALUES)}")
    value = row[forms[0]]
    if forms[0] == "value":
        data = _json(value).encode()
    elif not isinstance(value, str):
        raise ValueError(f"{forms[0]} must be a text")
    else:
        data = value.encode() if forms[0] == "value_text" else base64.b64decode(value, validate=True)
    version, times = row.get("version", 1), {name: row.get(name) for name in TIMES}
    if type(version) is not int or version < 1:
        raise ValueError("version must be an int, at least 1")
    for name, time in times.items():
        if type(time) not in (int, type(None)):
            raise ValueError(f"{name} must be an int, or null")
    return KeyValue(key=row["key"], value=data, version=version, **times)
