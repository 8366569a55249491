"""`eventproc supervisor`: submit, show, suspend, reset and terminate supervisors, which ingest streams into tables."""

from __future__ import annotations

import json
from functools import partial
from itertools import zip_longest
from typing import Final

import attrs
import click

from eventproc import StreamCut
from eventproc.cli import session
from eventproc.cli.options import (
    Command,
    CommandGroup,
    F,
    Settings,
    dry_run_option,
    note,
    output_option,
    pass_settings,
    watch_option,
)
from eventproc.cli.output.tables import Row, show_done, show_one, show_rows, show_with_tables
from eventproc.cli.watch import show_found
from eventproc.describe import IngestTaskInfo, SpecEffect, SupervisorStatus
from eventproc.groups.position_texts import parse_cuts
from eventproc.ingestion import SupervisorSpec
from eventproc.runtime import Eventproc
from eventproc.store.model.ids import format_segment

COLUMNS: Final = ("id", "state", "table", "suspended", "version")
PARTITION_COLUMNS: Final = ("stream", "segment", "group", "offset", "read", "tail", "lag_events")
TASK_COLUMNS: Final = (
    "id",
    "group",
    "state",
    "publishing",
    "remaining_ms",
    "events",
    "rows",
    "unparseable",
    "error",
)
ERROR_COLUMNS: Final = ("failed_at_ms", "message")
RANGE_COLUMNS: Final = ("stream", "segment", "start", "end")
HISTORY_COLUMNS: Final = ("version", "created_ms", "change")
TABLES: Final = (("partitions", PARTITION_COLUMNS), ("tasks", TASK_COLUMNS), ("errors", ERROR_COLUMNS))
"""The tables of `status`: the field of each, and its columns."""

EFFECTS: Final = {
    SpecEffect.CREATE: "create the supervisor",
    SpecEffect.NONE: "change nothing",
    SpecEffect.UPDATE: "update the supervisor; its tasks go on",
    SpecEffect.REPLACE_TASKS: "let the tasks publish, and replace them",
}


def supervisor_argument(command: F) -> F:
    """Decorator of commands about one supervisor: its id, passed as `name`."""
    return click.argument("name", metavar="SUPERVISOR")(command)


@click.group(cls=CommandGroup)
def supervisor() -> None:
    """Submit, show, suspend, reset and terminate supervisors, which ingest streams into tables.

    Examples:
        eventproc supervisor submit clicks.yaml
        eventproc supervisor status clicks
    """


@supervisor.command(cls=Command)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@dry_run_option
@output_option()
@pass_settings
def submit(settings: Settings, file: str, dry_run: bool, output: str) -> None:
    """Submit the spec in FILE, in JSON or YAML; - reads it from stdin.

    A new id begins a supervisor; otherwise the spec replaces the present one. Every problem of the spec is named with
    its path. Tasks need a worker: `eventproc ingest worker`.

    Examples:
        eventproc supervisor submit clicks.yaml --dry-run
        eventproc supervisor submit clicks.yaml
    """
    with click.open_file(file, encoding="utf-8", errors="replace") as opened:
        spec = SupervisorSpec.parse(opened.read())

    async def act(ep: Eventproc) -> SpecEffect:
        effect = await ep.preview_supervisor(spec)
        if not dry_run:
            await ep.submit_supervisor(spec)
        return effect

    effect = session.run(settings, act)
    if output == "table" and dry_run:
        click.echo(f"{spec.id}: this would {EFFECTS[effect]}")
    elif dry_run:
        show_one({"dry_run": True, "would": effect.value, "target": spec.id}, output)
    else:
        row = {"dry_run": False, "done": effect.value, "target": spec.id}
        show_done(settings, row, output, f"submitted {spec.id}: {effect.value}")


@supervisor.command("list")
@watch_option
@output_option()
@pass_settings
def list_(settings: Settings, output: str) -> None:
    """List the supervisors that have not ended.

    Examples:
        eventproc supervisor list
        eventproc supervisor list --output json
    """

    async def look(ep: Eventproc) -> list[Row]:
        return [
            {
                "id": each.id,
                "state": each.state.value,
                "healthy": each.healthy,
                "table": each.datasource,
                "suspended": each.suspended,
                "version": each.version,
            }
            for each in await ep.supervisors()
        ]

    show_found(settings, look, lambda rows: show_rows(rows, COLUMNS, output))


@supervisor.command()
@supervisor_argument
@watch_option
@output_option()
@pass_settings
def status(settings: Settings, name: str, output: str) -> None:
    """Show what a supervisor does: state, partitions with their lag, live tasks, errors.

    Examples:
        eventproc supervisor status clicks
        eventproc supervisor status clicks --output json
    """

    async def look(ep: Eventproc) -> Row:
        return _status_row(await (await ep.supervisor(name)).status())

    show_found(settings, look, partial(show_with_tables, tables=TABLES, output=output))


@supervisor.command()
@supervisor_argument
@watch_option
@output_option()
@pass_settings
def lag(settings: Settings, name: str, output: str) -> None:
    """Show how far each partition was published and read, and the events behind that.

    Examples:
        eventproc supervisor lag clicks
        eventproc supervisor lag clicks --watch 2
    """

    async def look(ep: Eventproc) -> list[Row]:
        return _partition_rows(await (await ep.supervisor(name)).status())

    show_found(settings, look, lambda rows: show_rows(rows, PARTITION_COLUMNS, output))


@supervisor.command()
@supervisor_argument
@watch_option
@output_option()
@pass_settings
def tasks(settings: Settings, name: str, output: str) -> None:
    """List the tasks with their reports, the oldest first; of those that ended, the last 200.

    As JSON, each has its positions, rates, and the samples of unparseable events.

    Examples:
        eventproc supervisor tasks clicks
        eventproc supervisor tasks clicks --output json
    """

    async def look(ep: Eventproc) -> list[Row]:
        return [_task_row(each) for each in await (await ep.supervisor(name)).tasks()]

    show_found(settings, look, lambda rows: show_rows(rows, TASK_COLUMNS, output))


@supervisor.command()
@supervisor_argument
@watch_option
@output_option()
@pass_settings
def describe(settings: Settings, name: str, output: str) -> None:
    """Show the spec of a supervisor: fields that differ from their defaults, as `submit` takes them.

    Examples:
        eventproc supervisor describe clicks
        eventproc supervisor describe clicks --output json
    """

    async def look(ep: Eventproc) -> Row:
        found: Row = json.loads((await (await ep.supervisor(name)).spec()).text())
        return found

    show_found(settings, look, lambda row: show_one(_flat(row) if output == "table" else row, output))


@supervisor.command()
@supervisor_argument
@click.argument("file", type=click.Path(dir_okay=False))
@output_option()
@pass_settings
def plot(settings: Settings, name: str, file: str, output: str) -> None:
    """Draw the lag of a supervisor since its beginning, and the rows of its table by interval and file.

    FILE is the picture: .png, .svg or .pdf. An existing one is replaced. Needs the extra `plot`.

    Examples:
        eventproc supervisor plot clicks clicks.png
    """

    async def act(ep: Eventproc) -> None:
        await (await ep.supervisor(name)).plot(file)

    session.run(settings, act)
    show_done(settings, {"done": "plot", "target": name, "file": file}, output, f"drew {name} into {file}")


@supervisor.command()
@supervisor_argument
@output_option()
@pass_settings
def history(settings: Settings, name: str, output: str) -> None:
    """List the versions of a supervisor's spec, the newest first.

    Examples:
        eventproc supervisor history clicks
        eventproc supervisor history clicks --output json
    """

    async def look(ep: Eventproc) -> list[Row]:
        versions = await (await ep.supervisor(name)).history()
        before = [each.spec for each in versions[1:]]
        return [
            {
                "version": each.version,
                "created_ms": each.created_ms,
                "change": _change(each.spec, former),
                "spec": None if each.spec is None else json.loads(each.spec.text()),
            }
            for each, former in zip_longest(versions, before)
        ]

    show_rows(session.run(settings, look), HISTORY_COLUMNS, output)


@supervisor.command()
@supervisor_argument
@output_option()
@pass_settings
def suspend(settings: Settings, name: str, output: str) -> None:
    """Let the tasks of a supervisor publish and end, and create no others until `resume`.

    Examples:
        eventproc supervisor suspend clicks
    """

    async def act(ep: Eventproc) -> None:
        await (await ep.supervisor(name)).suspend()

    session.run(settings, act)
    show_done(settings, {"done": "suspend", "target": name}, output, f"suspended {name}; its tasks publish")


@supervisor.command()
@supervisor_argument
@output_option()
@pass_settings
def resume(settings: Settings, name: str, output: str) -> None:
    """Let a suspended supervisor go on, at its published offsets.

    Examples:
        eventproc supervisor resume clicks
    """

    async def act(ep: Eventproc) -> None:
        await (await ep.supervisor(name)).resume()

    session.run(settings, act)
    show_done(settings, {"done": "resume", "target": name}, output, f"resumed {name}")


@supervisor.command()
@supervisor_argument
@click.option(
    "--group",
    "groups",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Number of a group; may be repeated. All groups unless given.",
)
@output_option()
@pass_settings
def handoff(settings: Settings, name: str, groups: tuple[int, ...], output: str) -> None:
    """Let groups publish what they have read now. Others go on behind them.

    Examples:
        eventproc supervisor handoff clicks
        eventproc supervisor handoff clicks --group 0
    """

    async def act(ep: Eventproc) -> None:
        await (await ep.supervisor(name)).handoff(groups or None)

    session.run(settings, act)
    row = {"done": "handoff", "target": name, "groups": list(groups)}
    show_done(settings, row, output, f"{name}: groups publish what they have read")


@supervisor.command()
@supervisor_argument
@click.option(
    "--to",
    "cuts",
    multiple=True,
    metavar="CUT",
    help="A cut, as `eventproc stream cut` prints it; one for each stream that moves.",
)
@dry_run_option
@output_option()
@pass_settings
def reset(settings: Settings, name: str, cuts: tuple[str, ...], dry_run: bool, output: str) -> None:
    """Read again from another position; without --to, as the spec says for a first run.

    What was published stays, so rows of events that are read again are counted again: drop their intervals first. Only
    the groups that read the partitions of the cuts are dropped.

    Examples:
        eventproc supervisor reset clicks --dry-run
        eventproc supervisor reset clicks --to 7:0.0=1200
    """

    async def act(ep: Eventproc) -> list[Row]:
        found = await ep.supervisor(name)
        status = await found.status()
        chosen: list[StreamCut] = []
        if cuts:
            known = {each: (await ep.stream(each)).stream_id for each in status.streams}
            chosen = list(parse_cuts(cuts, known).values())
        if not dry_run:
            await found.reset(chosen or None)
        return _moves(status, chosen)

    rows = session.run(settings, act)
    if output == "table":
        show_rows(rows, ("stream", "segment", "offset", "offset_after"), output)
    else:
        verb = "would" if dry_run else "done"
        show_one({"dry_run": dry_run, verb: "reset", "target": name, "partitions": rows}, output)
    note(settings, f"nothing was changed; without --dry-run, {name} is reset" if dry_run else f"reset {name}")


@supervisor.command()
@supervisor_argument
@click.option(
    "--id",
    "bounded",
    metavar="ID",
    help='Id of the bounded supervisor. SUPERVISOR with "-backfill-" and a number unless given.',
)
@click.option(
    "--task-count",
    type=click.IntRange(min=1),
    metavar="N",
    help="Groups of the bounded supervisor. As many as SUPERVISOR began with unless given.",
)
@dry_run_option
@output_option()
@pass_settings
def backfill(
    settings: Settings, name: str, bounded: str | None, task_count: int | None, dry_run: bool, output: str
) -> None:
    """Go on with new events, and let a bounded supervisor publish what SUPERVISOR is behind.

    The bounded supervisor writes to the same table, keeps its events readable, and is completed when all are published;
    terminate it then.

    Examples:
        eventproc supervisor backfill clicks --dry-run
        eventproc supervisor backfill clicks --task-count 4
    """

    async def act(ep: Eventproc) -> SupervisorSpec:
        found = await ep.supervisor(name)
        if dry_run:
            return await found.preview_backfill(bounded, task_count=task_count)
        return await (await found.backfill(bounded, task_count=task_count)).spec()

    spec = session.run(settings, act)
    rows = [attrs.asdict(each) for each in spec.io.ranges]
    if output == "table":
        show_rows(rows, RANGE_COLUMNS, output)
    else:
        verb = "would" if dry_run else "done"
        row = {"dry_run": dry_run, verb: "backfill", "target": name, "backfill": spec.id, "ranges": rows}
        show_one(row, output)
    began = f"{spec.id} publishes these ranges; {name} goes on behind them"
    note(settings, f"nothing was changed; without --dry-run, {began}" if dry_run else began)


@supervisor.command()
@supervisor_argument
@output_option()
@pass_settings
def terminate(settings: Settings, name: str, output: str) -> None:
    """End a supervisor; its tasks publish first. Its history, offsets and table stay.

    Submitting its spec again begins it again, where it ended.

    Examples:
        eventproc supervisor terminate clicks
    """
    _terminate(settings, name, output)


@supervisor.command()
@supervisor_argument
@output_option()
@pass_settings
def shutdown(settings: Settings, name: str, output: str) -> None:
    """End a supervisor: Druid's former name of `terminate`.

    Examples:
        eventproc supervisor shutdown clicks
    """
    _terminate(settings, name, output)


def _terminate(settings: Settings, name: str, output: str) -> None:
    async def act(ep: Eventproc) -> None:
        await (await ep.supervisor(name)).terminate()

    session.run(settings, act)
    show_done(
        settings, {"done": "terminate", "target": name}, output, f"terminated {name}; its tasks publish"
    )


def _moves(status: SupervisorStatus, cuts: list[StreamCut]) -> list[Row]:
    """Return the partitions that a reset moves; without cuts, all, to where a first run begins (None)."""
    after = {(cut.stream, segment): offset for cut in cuts for segment, offset in cut.offsets.items()}
    return [
        {
            "stream": each.stream,
            "segment": format_segment(each.segment),
            "offset": each.offset,
            "offset_after": after.get((each.stream, each.segment)),
        }
        for each in status.partitions
        if not cuts or (each.stream, each.segment) in after
    ]


def _change(spec: SupervisorSpec | None, former: SupervisorSpec | None) -> str:
    if spec is None:
        return "terminated"
    if spec.suspended:
        return "suspended"
    return "resumed" if former == attrs.evolve(spec, suspended=True) else "submitted"


def _status_row(found: SupervisorStatus) -> dict[str, object]:
    return {
        "id": found.id,
        "state": found.state.value,
        "healthy": found.healthy,
        "suspended": found.suspended,
        "version": found.version,
        "table": found.datasource,
        "streams": list(found.streams),
        "task_count": found.task_count,
        "replicas": found.replicas,
        "task_duration_ms": found.task_duration_ms,
        "reading_tasks": len(found.active),
        "publishing_tasks": len(found.publishing),
        "waiting_tasks": found.waiting,
        "lag_events": found.lag,
        "autoscaler": found.autoscaler,
        "partitions": _partition_rows(found),
        "tasks": [_task_row(each) for each in (*found.active, *found.publishing)],
        "errors": [{"failed_at_ms": each.at_ms, "message": each.message} for each in found.errors],
    }


def _partition_rows(found: SupervisorStatus) -> list[Row]:
    return [
        {
            "stream": each.stream,
            "segment": format_segment(each.segment),
            "group": each.group,
            "offset": each.offset,
            "read": each.read,
            "tail": each.tail,
            "lag_events": each.lag,
        }
        for each in found.partitions
    ]


def _task_row(each: IngestTaskInfo) -> dict[str, object]:
    stats = each.stats
    return {
        "id": each.id,
        "group": each.group,
        "replica": each.replica,
        "state": each.state.value,
        "publishing": each.publishing,
        "worker": each.worker,
        "created_ms": each.created_ms,
        "started_at_ms": each.started_ms,
        "finished_ms": each.finished_ms,
        "remaining_ms": each.remaining_ms,
        "starts": dict(each.starts),
        "read": dict(each.read),
        "events": stats.processed,
        "bytes": stats.processed_bytes,
        "rows": stats.rows,
        "thrown_away": stats.thrown_away,
        "unparseable": stats.unparseable,
        "samples": list(stats.samples),
        "progress_at_ms": stats.progress_ms,
        "busy_ratio": stats.busy_ratio,
        "rates": list(stats.rates),
        "error": each.error,
    }


def _flat(row: Row, prefix: str = "") -> dict[str, object]:
    """Return nested fields by their paths, for people."""
    flat: dict[str, object] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = json.dumps(value) if isinstance(value, list) else value
    return flat
