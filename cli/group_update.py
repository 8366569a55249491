"""`eventproc group update`: change options of a group."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import attrs
import click

from eventproc.cli import session
from eventproc.cli.options import (
    Command,
    DurationParam,
    Settings,
    group_argument,
    output_option,
    pass_settings,
)
from eventproc.cli.output.tables import Row, show_done
from eventproc.groups import GroupOptions, RetainedPart, TruncatedPolicy
from eventproc.groups.changes import SAME, Same
from eventproc.runtime import Eventproc

RETAINED: Final[Mapping[str, RetainedPart | None]] = {
    "progress": "progress",
    "manual": "manual",
    "nothing": None,
}
"""The values of `--retains`, and the option of a group that each one means."""


class OptionalDuration(DurationParam):
    """A number of seconds, or "none", which is an infinite time."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        return math.inf if value == "none" else super().convert(value, param, ctx)


@click.command(cls=Command)
@group_argument
@click.option(
    "--lease",
    type=OptionalDuration(),
    metavar="SECONDS",
    help="How long a reader may be silent before it is expired; none: only dead readers are removed.",
)
@click.option(
    "--checkpoint-every",
    "checkpoint",
    type=OptionalDuration(),
    metavar="SECONDS",
    help="Interval of automatic checkpoints; none: there are none.",
)
@click.option(
    "--rebalance",
    type=OptionalDuration(),
    metavar="SECONDS",
    help="How long a reader may take to release a segment; none: as long as it needs.",
)
@click.option(
    "--on-truncated",
    type=click.Choice(["earliest", "latest", "error"]),
    help="Where to continue if events were truncated before they were read.",
)
@click.option("--assignor", metavar="NAME", help="Who decides which reader owns which segment.")
@click.option(
    "--retains",
    type=click.Choice(["progress", "manual", "nothing"]),
    help="What a stream with --until-consumed keeps for this group.",
)
@output_option()
@pass_settings
def update(
    settings: Settings,
    name: str,
    lease: float | None,
    checkpoint: float | None,
    rebalance: float | None,
    on_truncated: TruncatedPolicy | None,
    assignor: str | None,
    retains: str | None,
    output: str,
) -> None:
    """Change options of a group of readers or consumers, which stay online. The other options stay as they are.

    Examples:
        eventproc group update shop/billing --lease 30
        eventproc group update shop/billing --lease none --assignor range
    """
    if all(each is None for each in (lease, checkpoint, rebalance, on_truncated, assignor, retains)):
        raise click.UsageError(
            "say what to change: --lease, --checkpoint-every, --rebalance, --on-truncated, --assignor or --retains"
        )

    async def act(ep: Eventproc) -> GroupOptions:
        return await (await ep.group(name)).update(
            lease_ms=_ms(lease),
            checkpoint_ms=_ms(checkpoint),
            rebalance_ms=_ms(rebalance),
            on_truncated=on_truncated,
            assignor=assignor,
            retains=SAME if retains is None else RETAINED[retains],
        )

    options = session.run(settings, act)
    row: Row = {"done": "update", "target": name, "options": attrs.asdict(options)}
    show_done(settings, row, output, f"updated group {name}")


def _ms(seconds: float | None) -> int | Same | None:
    """Return the option of a group that a duration means."""
    if seconds is None:
        return SAME
    return None if math.isinf(seconds) else round(seconds * 1000)
