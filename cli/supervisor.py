"""`eventproc supervisor`: submit, show, suspend, reset and terminate supervisors, which ingest streams into tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

import click

from eventproc.cli.options import TABLE, Settings, dry_run_option, output_option, pass_settings
from eventproc.cli.output.tables import Row, show_done, show_one
from eventproc.cli.verbs import Noun, stream_ids

if TYPE_CHECKING:
    from eventproc import StreamCut
    from eventproc.describe import (
        IngestPartition,
        IngestTaskInfo,
        SpecEffect,
        SupervisorInfo,
        SupervisorStatus,
    )
    from eventproc.ingestion import SupervisorSpec
    from eventproc.runtime import Eventproc

COLUMNS: Final = ("id", "state", "datasource", "suspended", "version")
PARTITION_COLUMNS: Final = ("stream", "segment", "group", "offset", "read", "tail", "lag")
TASK_COLUMNS: Final = (
    *("id", "group", "state", "publishing", "remaining_ms", "stats.processed", "stats.rows"),
    *("stats.unparseable", "error"),
)
ERROR_COLUMNS: Final = ("at_ms", "message")
RANGE_COLUMNS: Final = ("stream", "segment", "start", "end")
HISTORY_COLUMNS: Final = ("version", "created_ms", "change")
TABLES: Final = {
    "partitions": PARTITION_COLUMNS,
    "active": TASK_COLUMNS,
    "publishing": TASK_COLUMNS,
    "errors": ERROR_COLUMNS,
}
"""The tables of `status`: the field of each, and its columns."""

EFFECTS: Final = {
    "create": "create the supervisor",
    "none": "change nothing",
    "update": "update the supervisor; its tasks go on",
    "replace_tasks": "let the tasks publish, and replace them",
}


supervisor_argument: Final = click.argument("name", metavar="SUPERVISOR")


def one_or_all(command: Any) -> Any:
    """Give a command an optional supervisor, and --all in place of one. To be checked by `one_of_both`."""
    click.option("--all", "is_all", is_flag=True, help="All supervisors; instead of SUPERVISOR.")(command)
    return click.argument("name", metavar="[SUPERVISOR]", required=False)(command)


def one_of_both(name: str | None, is_all: bool) -> dict[str, Any]:
    """Return the arguments. Raises UsageError unless there is either a supervisor or --all."""
    if is_all == (name is not None):
        raise click.UsageError("give either SUPERVISOR or --all")
    return {"name": name, "is_all": is_all}


def _changed(verb: str, then: str) -> Callable[[Row], str]:
    """Return what makes the report of such a change. verb: in the past. then: what follows, after the names."""

    def text(row: Row) -> str:
        found: Any = row.get("supervisors")
        names = [str(row["name"])] if found is None else found
        return f"{verb} {', '.join(names) or 'no supervisor'}{then if names else ''}"

    return text


@click.group(cls=Noun)
def supervisor() -> None:
    """Submit, show, suspend, reset and terminate supervisors, which ingest streams into tables.

    Examples:
        eventproc supervisor submit clicks.yaml
        eventproc supervisor status clicks
    """


@supervisor.command()
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
    from eventproc.cli import session
    from eventproc.cli.input.lines import read_text
    from eventproc.ingestion import SupervisorSpec

    spec = SupervisorSpec.parse(read_text(file))

    async def act(ep: Eventproc) -> SpecEffect:
        effect = await ep.preview_supervisor(spec)
        if not dry_run:
            await ep.submit_supervisor(spec)
        return effect

    effect = session.run(settings, act)
    if output == TABLE and dry_run:
        click.echo(f"{spec.id}: this would {EFFECTS[effect.value]}")
    elif dry_run:
        show_one({"dry_run": True, "would": effect.value, "target": spec.id}, output)
    else:
        row = {"dry_run": False, "done": effect.value, "target": spec.id}
        show_done(settings, row, output, f"submitted {spec.id}: {effect.value}")


@supervisor.shows(COLUMNS)
async def list_(ep: Eventproc) -> list[SupervisorInfo]:
    """List the supervisors that have not ended.

    Examples:
        eventproc supervisor list
        eventproc supervisor list --output json
    """
    return await ep.supervisors()


@supervisor.shows(tables=TABLES)
@supervisor_argument
async def status(ep: Eventproc, name: str) -> SupervisorStatus:
    """Show what a supervisor does: state, partitions with their lag, live tasks, errors.

    Examples:
        eventproc supervisor status clicks
        eventproc supervisor status clicks --output json
    """
    return await (await ep.supervisor(name)).status()


@supervisor.shows(PARTITION_COLUMNS)
@supervisor_argument
async def lag(ep: Eventproc, name: str) -> list[IngestPartition]:
    """Show how far each partition was published and read, and the events behind that.

    Examples:
        eventproc supervisor lag clicks
        eventproc supervisor lag clicks --watch 2
    """
    return list((await (await ep.supervisor(name)).status()).partitions)


@supervisor.shows(TASK_COLUMNS)
@supervisor_argument
async def tasks(ep: Eventproc, name: str) -> list[IngestTaskInfo]:
    """List the tasks with their reports, the oldest first; of those that ended, the last 200.

    As JSON, each has its positions, rates, and the samples of unparseable events.

    Examples:
        eventproc supervisor tasks clicks
        eventproc supervisor tasks clicks --output json
    """
    return await (await ep.supervisor(name)).tasks()


@supervisor.shows()
@supervisor_argument
async def describe(ep: Eventproc, name: str) -> Row:
    """Show the spec of a supervisor: fields that differ from their defaults, as `submit` takes them.

    Examples:
        eventproc supervisor describe clicks
        eventproc supervisor describe clicks --output json
    """
    found: Row = json.loads((await (await ep.supervisor(name)).spec()).text())
    return found


@supervisor.does("drew {name} into {file}")
@supervisor_argument
@click.argument("file", type=click.Path(dir_okay=False))
async def plot(ep: Eventproc, name: str, file: str) -> None:
    """Draw the lag of a supervisor since its beginning, and the rows of its table by interval and file.

    FILE is the picture: .png, .svg or .pdf. An existing one is replaced. Needs the extra `plot`.

    Examples:
        eventproc supervisor plot clicks clicks.png
    """
    await (await ep.supervisor(name)).plot(file)


@supervisor.shows(HISTORY_COLUMNS, watch=False)
@supervisor_argument
async def history(ep: Eventproc, name: str) -> list[Row]:
    """List the versions of a supervisor's spec, the newest first.

    Examples:
        eventproc supervisor history clicks
        eventproc supervisor history clicks --output json
    """
    versions = await (await ep.supervisor(name)).history()
    return [
        {
            "version": each.version,
            "created_ms": each.created_ms,
            "change": _change(each.spec, former),
            "spec": None if each.spec is None else json.loads(each.spec.text()),
        }
        for each, former in zip_longest(versions, [each.spec for each in versions[1:]])
    ]


@supervisor.does(_changed("suspended", "; the tasks publish"), before=one_of_both)
@one_or_all
async def suspend(ep: Eventproc, name: str, is_all: bool) -> Row | None:
    """Let the tasks of a supervisor publish and end, and create no others until `resume`.

    Examples:
        eventproc supervisor suspend clicks
        eventproc supervisor suspend --all
    """
    if is_all:
        return {"supervisors": await ep.suspend_supervisors()}
    await (await ep.supervisor(name)).suspend()
    return None


@supervisor.does(_changed("resumed", ""), before=one_of_both)
@one_or_all
async def resume(ep: Eventproc, name: str, is_all: bool) -> Row | None:
    """Let a suspended supervisor go on, at its published offsets.

    Examples:
        eventproc supervisor resume clicks
        eventproc supervisor resume --all
    """
    if is_all:
        return {"supervisors": await ep.resume_supervisors()}
    await (await ep.supervisor(name)).resume()
    return None


@supervisor.does("{name}: groups publish what they have read")
@supervisor_argument
@click.option(
    "--group",
    "groups",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Number of a group; may be repeated. All groups unless given.",
)
async def handoff(ep: Eventproc, name: str, groups: tuple[int, ...]) -> Row:
    """Let groups publish what they have read now. Others go on behind them.

    Examples:
        eventproc supervisor handoff clicks
        eventproc supervisor handoff clicks --group 0
    """
    await (await ep.supervisor(name)).handoff(groups or None)
    return {"groups": list(groups)}


@supervisor.previews({"partitions": ("stream", "segment", "offset", "offset_after")}, "{target} is reset")
@supervisor_argument
@click.option(
    "--to",
    "cuts",
    multiple=True,
    metavar="CUT",
    help="A cut, as `eventproc stream cut` prints it; one for each stream that moves.",
)
async def reset(ep: Eventproc, name: str, cuts: tuple[str, ...], dry_run: bool) -> Row:
    """Read again from another position; without --to, as the spec says for a first run.

    What was published stays, so rows of events that are read again are counted again: drop their intervals first. Only
    the groups that read the partitions of the cuts are dropped.

    Examples:
        eventproc supervisor reset clicks --dry-run
        eventproc supervisor reset clicks --to 7:0.0=1200
    """
    from eventproc.groups.position_texts import parse_cuts

    found = await ep.supervisor(name)
    chosen: list[StreamCut] | None = None
    if cuts:
        chosen = list(parse_cuts(cuts, await stream_ids(ep, (await found.status()).streams)).values())
    partitions = await found.preview_reset(chosen)
    if not dry_run:
        await found.reset(chosen)
    return {"partitions": partitions}


@supervisor.previews(
    {"ranges": RANGE_COLUMNS}, "{backfill} publishes these ranges; {target} goes on behind them"
)
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
async def backfill(
    ep: Eventproc, name: str, bounded: str | None, task_count: int | None, dry_run: bool
) -> Row:
    """Go on with new events, and let a bounded supervisor publish what SUPERVISOR is behind.

    The bounded supervisor writes to the same table, keeps its events readable, and is completed when all are published;
    terminate it then.

    Examples:
        eventproc supervisor backfill clicks --dry-run
        eventproc supervisor backfill clicks --task-count 4
    """
    found = await ep.supervisor(name)
    if dry_run:
        spec = await found.preview_backfill(bounded, task_count=task_count)
    else:
        spec = await (await found.backfill(bounded, task_count=task_count)).spec()
    return {"backfill": spec.id, "ranges": spec.io.ranges}


@supervisor.does(_changed("terminated", "; the tasks publish"), before=one_of_both)
@one_or_all
async def terminate(ep: Eventproc, name: str, is_all: bool) -> Row | None:
    """End a supervisor; its tasks publish first. Its history, offsets and table stay.

    Submitting its spec again begins it again, where it ended.

    Examples:
        eventproc supervisor terminate clicks
        eventproc supervisor terminate --all
    """
    if is_all:
        return {"supervisors": await ep.terminate_supervisors()}
    await (await ep.supervisor(name)).terminate()
    return None


@supervisor.does("terminated {name}; the tasks publish")
@supervisor_argument
async def shutdown(ep: Eventproc, name: str) -> None:
    """End a supervisor: Druid's former name of `terminate`.

    Examples:
        eventproc supervisor shutdown clicks
    """
    await (await ep.supervisor(name)).terminate()


def _change(spec: SupervisorSpec | None, former: SupervisorSpec | None) -> str:
    import attrs

    if spec is None:
        return "terminated"
    if former != attrs.evolve(spec, suspended=not spec.suspended):
        return "submitted"
    return "suspended" if spec.suspended else "resumed"
