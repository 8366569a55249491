"""`eventproc write`: write the rows of a file or a pipe to a stream."""

from __future__ import annotations

from functools import partial

import click

from eventproc.cli.input.recognition import FORMATS
from eventproc.cli.options import (
    Command,
    Settings,
    due_ms,
    due_options,
    output_option,
    pass_settings,
    stream_argument,
)


@click.command(cls=Command)
@stream_argument
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default="-")
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    help="Format of the rows; by default what the content and the file's suffix say. `lines` writes any bytes.",
)
@click.option(
    "--key",
    metavar="COLUMN",
    help="The column, or the field of each JSON object, that is the routing key.",
)
@click.option(
    "--id",
    metavar="COLUMN",
    help="The column, or the field, that identifies the event: a row whose id the stream knows is not written again.",
)
@click.option(
    "--partition",
    type=int,
    metavar="P",
    help="Write all rows to this partition of a topic, whatever their keys.",
)
@click.option(
    "--priority",
    type=int,
    default=0,
    metavar="N",
    help="Priority of all rows, 0 (default) to 9; share groups deliver higher ones first.",
)
@due_options
@click.option(
    "--transaction",
    "atomic",
    is_flag=True,
    help="Write all rows in one transaction: they become visible together, or never.",
)
@output_option()
@pass_settings
def write(
    settings: Settings,
    name: str,
    file: str,
    kind: str | None,
    key: str | None,
    id: str | None,
    partition: int | None,
    priority: int,
    delay: float | None,
    at: str | None,
    atomic: bool,
    output: str,
) -> None:
    """Write the rows of FILE, or of standard input, to a stream or topic.

    Prints `written N`; N is the number of events durable so far. --output jsonl prints N as an object on a line each
    time, and --output json only the last one.

    The rows are recognised by their content: lines, JSON lines, CSV (by its suffix), one JSON array, JSON over several
    lines, Parquet and Arrow. CSV, Parquet and Arrow rows become JSON objects. Input in gzip, xz or bzip2 format is
    decompressed. Other binary input is refused; --format lines writes it as it is.

    A row that cannot be written ends the command; the rows before it stay written. With --id the command can be
    repeated then: rows that were written are not written again, and do not count.

    With --delay or --at the events are durable at once, and are appended when they are due; `eventproc delayed` shows,
    cancels and moves them until then.

    With --transaction, either all rows become visible, after the last one, or none; Ctrl-C aborts. The id of the
    transaction, for `eventproc txn`, is printed on standard error.

    Examples:
        eventproc write shop/orders orders.jsonl --key customer
        eventproc write shop/orders orders.jsonl --key customer --id order
        eventproc write shop/orders orders.csv --key customer --transaction
        eventproc write shop/orders orders.parquet --key customer
        eventproc write shop/clicks clicks.jsonl --partition 3
        echo '{"remind": "ana"}' | eventproc write shop/mails --delay 3600
        tail -f app.log | eventproc write shop/log
    """
    from eventproc.cli import session
    from eventproc.cli.input.lines import open_input
    from eventproc.cli.input.rows import RowFields
    from eventproc.cli.writing import WriteReport, WriteTask, write_rows, write_transaction

    fields = RowFields(key, id)
    if kind == "lines":
        fields.verify_none()
    delay_ms, at_ms = due_ms(delay, at)
    if atomic and (delay_ms, at_ms) != (None, None):
        raise click.UsageError("--transaction makes events visible at once: leave --delay and --at out")
    if atomic and id is not None:
        raise click.UsageError("--transaction writes all rows or none: leave --id out")
    with open_input(file) as source:
        act = write_transaction if atomic else write_rows
        # A host makes a transaction visible: this process becomes the host if there is none.
        task = WriteTask(
            settings,
            name,
            source,
            kind,
            fields,
            (partition, delay_ms, at_ms),
            priority,
            WriteReport(output),
        )
        session.run(settings, partial(act, task=task), host=atomic)
