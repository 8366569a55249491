"""Every command with its one-line help and its parameters. `make docs` writes this module from the commands."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

COMMANDS: Final[Mapping[str, tuple[str, list[tuple[str, str, bool]]]]] = MappingProxyType(
    {
        "": (
            "Durable, elastic streams and ordered event processing in a directory.",
            [
                ("-C", "directory", False),
                ("-q --quiet", "flag", False),
                ("--debug", "flag", False),
                ("--version", "flag", False),
            ],
        ),
        "init": (
            "Create the directory DIR for streams; the current directory unless given.",
            [
                ("argument", "directory", False),
                ("--durability", "fsync|os", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "scope": (
            "Create, list and delete scopes, the namespaces of streams.",
            [],
        ),
        "scope create": (
            "Create a scope.",
            [
                ("name", "scope", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "scope delete": (
            "Delete a scope.",
            [
                ("name", "scope", False),
                ("--recursive", "flag", False),
                ("--dry-run", "flag", False),
                ("-y --yes", "flag", False),
                ("--no-wait", "flag", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "scope list": (
            "List the scopes.",
            [
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream": (
            "Create, show, scale, truncate, offload, seal and delete streams.",
            [],
        ),
        "stream create": (
            "Create a stream.",
            [
                ("name", "stream", False),
                ("--segments", "", False),
                ("--no-wait", "flag", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream cut": (
            "Print a cut, for `truncate --cut` and `read --from`.",
            [
                ("name", "stream", False),
                ("--at", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream delete": (
            "Delete a sealed stream with its events and transactions.",
            [
                ("name", "stream", False),
                ("--dry-run", "flag", False),
                ("-y --yes", "flag", False),
                ("--no-wait", "flag", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream describe": (
            "Show a stream's state, sizes, ends and segments.",
            [
                ("name", "stream", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream epochs": (
            "List the epochs that are still stored, the oldest first.",
            [
                ("name", "stream", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream list": (
            "List the streams of a scope, or of all scopes, with the events and bytes that...",
            [
                ("scope", "scope", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream merge": (
            "Merge active segments with adjacent key ranges, and print the new segment.",
            [
                ("name", "stream", False),
                ("segments", "segment", True),
                ("--no-wait", "flag", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream offload": (
            "Move old events of a stream from the database into files.",
            [
                ("name", "stream", False),
                ("--older-than", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream scale": (
            "Seal segments, and open new ones over exactly the same key space; print the...",
            [
                ("name", "stream", False),
                ("--seal", "segment", False),
                ("--ranges", "", False),
                ("--no-wait", "flag", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream seal": (
            "Seal a stream for ever: its open transactions are aborted, and nothing can be...",
            [
                ("name", "stream", False),
                ("--dry-run", "flag", False),
                ("-y --yes", "flag", False),
                ("--no-wait", "flag", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream segments": (
            "List the active segments, in the order of their key ranges.",
            [
                ("name", "stream", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream split": (
            "Split an active segment into equal parts, and print the new segments.",
            [
                ("name", "stream", False),
                ("segment", "segment", False),
                ("--into", "", False),
                ("--no-wait", "flag", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream truncate": (
            "Move the head of a stream to a cut.",
            [
                ("name", "stream", False),
                ("--cut", "", False),
                ("--dry-run", "flag", False),
                ("-y --yes", "flag", False),
                ("--no-wait", "flag", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream update": (
            "Change the configuration.",
            [
                ("name", "stream", False),
                ("--segments", "", False),
                ("--no-wait", "flag", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "write": (
            "Write the rows of FILE, or of standard input, to a stream.",
            [
                ("name", "stream", False),
                ("file", "file", False),
                ("--format", "lines|jsonl|csv|json|parquet|arrow", False),
                ("--key", "", False),
                ("--transaction", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "read": (
            "Print the events of a stream, or of a reader group.",
            [
                ("name", "stream", False),
                ("--group", "group", False),
                ("--reader", "", False),
                ("--from", "", False),
                ("--max", "", False),
                ("--follow", "flag", False),
                ("--segment", "segment", True),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "group": (
            "Create, show, reset, checkpoint and delete reader groups.",
            [],
        ),
        "group checkpoint": (
            "Create a checkpoint, and print it when every reader has reported its...",
            [
                ("name", "group", False),
                ("checkpoint", "", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "group checkpoints": (
            "List the completed checkpoints that are still stored, the oldest first.",
            [
                ("name", "group", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "group create": (
            "Create a group of readers that share streams.",
            [
                ("name", "group", False),
                ("--stream", "stream", True),
                ("--from", "", True),
                ("--to", "", True),
                ("--lease", "", False),
                ("--checkpoint-every", "", False),
                ("--on-truncated", "earliest|latest|error", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "group delete": (
            "Delete a group with its positions and checkpoints.",
            [
                ("name", "group", False),
                ("--dry-run", "flag", False),
                ("-y --yes", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "group describe": (
            "Show a group: its options, lag, position, readers, and its segments with...",
            [
                ("name", "group", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "group lag": (
            "Show the lag of a group, by segment and in total: events, bytes, and the age...",
            [
                ("name", "group", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "group list": (
            "List the groups of a scope, or of all scopes, with their progress, including...",
            [
                ("scope", "scope", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "group offline": (
            "Remove a reader from its group.",
            [
                ("name", "group", False),
                ("reader", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "group reset": (
            "Move a group to another position.",
            [
                ("name", "group", False),
                ("--to", "", True),
                ("--checkpoint", "", False),
                ("--stream", "stream", True),
                ("--until", "", True),
                ("--dry-run", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "txn": (
            "List, describe, commit and abort transactions.",
            [],
        ),
        "txn abort": (
            "Abort a transaction: discard its staged events permanently.",
            [
                ("name", "stream", False),
                ("txn_id", "", False),
                ("--force", "flag", False),
                ("--dry-run", "flag", False),
                ("-y --yes", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "txn commit": (
            "Commit a transaction: make its staged events visible.",
            [
                ("name", "stream", False),
                ("txn_id", "", False),
                ("--no-wait", "flag", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "txn describe": (
            "Show a transaction: owner, size, lease, and the position of its events after...",
            [
                ("name", "stream", False),
                ("txn_id", "", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "txn list": (
            "List a stream's unfinished transactions: open, committing or aborting.",
            [
                ("name", "stream", False),
                ("--finished", "flag", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "processor": (
            "List, describe, pause and resume event processors.",
            [],
        ),
        "processor describe": (
            "Show a processor: its lag, the event that blocks it, its processes, and its...",
            [
                ("name", "group", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "processor list": (
            "List the processors with their progress.",
            [
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "processor pause": (
            "Pause a processor in all processes until `resume`.",
            [
                ("name", "group", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "processor resume": (
            "Resume a paused processor.",
            [
                ("name", "group", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "query": (
            "List the Spark queries that drivers with this directory attached have published.",
            [],
        ),
        "query list": (
            "List the queries that published a status within the last week, with their...",
            [
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "dead-letter": (
            "List, show, redrive and drop the events that processors gave up on.",
            [],
        ),
        "dead-letter drop": (
            "Delete dead letters permanently.",
            [
                ("name", "group", False),
                ("ids", "", True),
                ("--all", "flag", False),
                ("--dry-run", "flag", False),
                ("-y --yes", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "dead-letter list": (
            "List the pending dead letters of a group, in the order of their ids.",
            [
                ("name", "group", False),
                ("--limit", "", False),
                ("--after", "", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "dead-letter redrive": (
            "Let the processor handle events again, in no particular order relative to its...",
            [
                ("name", "group", False),
                ("ids", "", True),
                ("--all", "flag", False),
                ("--dry-run", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "dead-letter show": (
            "Show a dead letter: the event, its origin, and the error.",
            [
                ("name", "group", False),
                ("letter", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "request": (
            "Show, list and wait for requests to change streams and scopes.",
            [],
        ),
        "request list": (
            "List the newest requests, the newest first.",
            [
                ("--limit", "", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "request show": (
            "Show a request and its outcome.",
            [
                ("request_id", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "request wait": (
            "Wait until a request is done.",
            [
                ("request_id", "", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "run": (
            "Serve the directory, and run the processors of apps, until SIGTERM or Ctrl-C.",
            [
                ("apps", "", True),
                ("--workers", "", False),
                ("--reload", "flag", False),
                ("--grace", "", False),
                ("--host --no-host", "flag", False),
                ("--log-level", "debug|info|warning|error", False),
                ("--log-format", "text|json", False),
            ],
        ),
        "backup": (
            "Make a verified backup of the directory in the new folder DEST.",
            [
                ("dest", "", False),
                ("--dry-run", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "restore": (
            "Make the directory DIR from the backup SRC; the directory of -C or the...",
            [
                ("source", "", False),
                ("argument", "directory", False),
                ("--dry-run", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "verify": (
            "Check all pages, all invariants, and the content of all files of a directory...",
            [
                ("argument", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "doctor": (
            "Check a directory's health, and list the processes that use it.",
            [
                ("--quick", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "demo": (
            "Send the rows of a CSV FILE (plain, .gz or .xz) through a stream, and prove...",
            [
                ("file", "file", False),
                ("--key", "", False),
                ("--mean", "", False),
                ("-o --output", "table|json|jsonl", False),
                ("--dir", "directory", False),
                ("--durability", "fsync|os", False),
            ],
        ),
        "help": (
            "Show the help of a command, as its option --help does.",
            [
                ("words", "", True),
            ],
        ),
        "version": (
            "Show the versions of eventproc and Python.",
            [
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "completion": (
            "Print a shell's completion script.",
            [
                ("shell", "bash|zsh|fish", False),
            ],
        ),
    }
)
