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
                ("--chunks", "file", False),
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
                ("--request-id", "", False),
                ("--no-wait", "flag", False),
                ("--timeout", "", False),
                ("--background", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "scope list": (
            "List the scopes.",
            [
                ("--prefix", "", False),
                ("--after", "scope", False),
                ("--limit", "", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream": (
            "Create, show, scale, truncate, offload, seal and delete streams.",
            [],
        ),
        "stream compare": (
            "Print how the first position relates to the second: before, equal_or_after,...",
            [
                ("name", "stream", False),
                ("one", "", False),
                ("other", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream create": (
            "Create a stream.",
            [
                ("name", "stream", False),
                ("--segments", "", False),
                ("--events-per-second", "", False),
                ("--bytes-per-second", "", False),
                ("--factor", "", False),
                ("--segments-max", "", False),
                ("--window", "", False),
                ("--keep-days", "", False),
                ("--keep-bytes", "", False),
                ("--until-consumed", "flag", False),
                ("--keep-days-min", "", False),
                ("--keep-bytes-min", "", False),
                ("--keep-all", "flag", False),
                ("--tag", "", True),
                ("--request-id", "", False),
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
                ("--if-version", "", False),
                ("--request-id", "", False),
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
                ("--after", "", False),
                ("--limit", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream list": (
            "List the streams of a scope, or of all scopes, with the events and bytes that...",
            [
                ("scope", "scope", False),
                ("--tag", "", False),
                ("--prefix", "", False),
                ("--after", "stream", False),
                ("--limit", "", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream merge": (
            "Merge active segments with adjacent key ranges, and print the new segment.",
            [
                ("name", "stream", False),
                ("segments", "segment", True),
                ("--if-version", "", False),
                ("--request-id", "", False),
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
                ("--background", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream scale": (
            "Seal segments, and open new ones over exactly the same key space; print the...",
            [
                ("name", "stream", False),
                ("--seal", "segment", False),
                ("--ranges", "", False),
                ("--if-version", "", False),
                ("--request-id", "", False),
                ("--no-wait", "flag", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream scales": (
            "List the scales of a stream: when each one was, and which segments it sealed...",
            [
                ("name", "stream", False),
                ("--from", "", False),
                ("--to", "", False),
                ("--after", "", False),
                ("--limit", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream seal": (
            "Seal a stream for ever: its open transactions are aborted, and nothing can be...",
            [
                ("name", "stream", False),
                ("--dry-run", "flag", False),
                ("-y --yes", "flag", False),
                ("--if-version", "", False),
                ("--request-id", "", False),
                ("--no-wait", "flag", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream segment": (
            "Show a segment, active or sealed: its size, the segments that it replaced,...",
            [
                ("name", "stream", False),
                ("segment", "segment", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream segments": (
            "List the active segments, or those of another time, in the order of their key...",
            [
                ("name", "stream", False),
                ("--at", "", False),
                ("--epoch", "", False),
                ("--sealed", "flag", False),
                ("--from", "", False),
                ("--to", "", False),
                ("--after", "", False),
                ("--limit", "", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream size": (
            "Show how many bytes and events lie between two positions, and before the...",
            [
                ("name", "stream", False),
                ("--from", "", False),
                ("--to", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "stream split": (
            "Split an active segment into equal parts, and print the new segments.",
            [
                ("name", "stream", False),
                ("segment", "segment", False),
                ("--into", "", False),
                ("--if-version", "", False),
                ("--request-id", "", False),
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
                ("--if-version", "", False),
                ("--request-id", "", False),
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
                ("--events-per-second", "", False),
                ("--bytes-per-second", "", False),
                ("--factor", "", False),
                ("--segments-max", "", False),
                ("--window", "", False),
                ("--keep-days", "", False),
                ("--keep-bytes", "", False),
                ("--until-consumed", "flag", False),
                ("--keep-days-min", "", False),
                ("--keep-bytes-min", "", False),
                ("--keep-all", "flag", False),
                ("--tag", "", True),
                ("--no-tags", "flag", False),
                ("--if-version", "", False),
                ("--request-id", "", False),
                ("--no-wait", "flag", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "topic": (
            "Create, show, alter, truncate and delete topics, which are streams with...",
            [],
        ),
        "topic alter": (
            "Add partitions to a topic, change its strategy, or how long its events live.",
            [
                ("name", "topic", False),
                ("--partitions", "", False),
                ("--partitioning", "key|round_robin", False),
                ("--keep-days", "", False),
                ("--keep-bytes", "", False),
                ("--until-consumed", "flag", False),
                ("--keep-days-min", "", False),
                ("--keep-bytes-min", "", False),
                ("--keep-all", "flag", False),
                ("--ttl", "", False),
                ("--if-version", "", False),
                ("--request-id", "", False),
                ("--no-wait", "flag", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "topic create": (
            "Create a topic.",
            [
                ("name", "topic", False),
                ("--partitions", "", False),
                ("--partitioning", "key|round_robin", False),
                ("--keep-days", "", False),
                ("--keep-bytes", "", False),
                ("--until-consumed", "flag", False),
                ("--keep-days-min", "", False),
                ("--keep-bytes-min", "", False),
                ("--keep-all", "flag", False),
                ("--ttl", "", False),
                ("--request-id", "", False),
                ("--no-wait", "flag", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "topic delete": (
            "Delete a topic with its events and transactions.",
            [
                ("name", "topic", False),
                ("--dry-run", "flag", False),
                ("-y --yes", "flag", False),
                ("--if-version", "", False),
                ("--request-id", "", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "topic describe": (
            "Show a topic's state, strategy, sizes and partitions.",
            [
                ("name", "topic", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "topic list": (
            "List the topics of a scope, or of all scopes, with the events and bytes that...",
            [
                ("scope", "scope", False),
                ("--prefix", "", False),
                ("--after", "topic", False),
                ("--limit", "", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "topic truncate": (
            "Delete the oldest events of a topic, or of one partition.",
            [
                ("name", "topic", False),
                ("--partition", "", False),
                ("--before", "", False),
                ("--number", "", False),
                ("--cut", "", False),
                ("--dry-run", "flag", False),
                ("-y --yes", "flag", False),
                ("--if-version", "", False),
                ("--request-id", "", False),
                ("--no-wait", "flag", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "write": (
            "Write the rows of FILE, or of standard input, to a stream or topic.",
            [
                ("name", "stream", False),
                ("file", "file", False),
                ("--format", "lines|jsonl|csv|json|parquet|arrow", False),
                ("--key", "", False),
                ("--partition", "", False),
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
                ("--partition", "", True),
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
                ("--assignor", "equal|range|round_robin|lag", False),
                ("--retains", "progress|manual|nothing", False),
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
                ("--prefix", "", False),
                ("--after", "group", False),
                ("--limit", "", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "group members": (
            "Show the state of a group, and its consumers with the partitions that each...",
            [
                ("name", "group", False),
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
        "group offsets": (
            "Show the offsets of a group by partition, as event numbers, and how many...",
            [
                ("name", "group", False),
                ("--watch", "", False),
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
                ("--offset", "", False),
                ("--shift", "", False),
                ("--duration", "", False),
                ("--partition", "", True),
                ("--dry-run", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "group update": (
            "Change options of a group of readers or consumers, which stay online.",
            [
                ("name", "group", False),
                ("--lease", "", False),
                ("--checkpoint-every", "", False),
                ("--rebalance", "", False),
                ("--on-truncated", "earliest|latest|error", False),
                ("--assignor", "", False),
                ("--retains", "progress|manual|nothing", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "share": (
            "Create, show, reset and delete share groups: streams as queues.",
            [],
        ),
        "share create": (
            "Create a share group.",
            [
                ("name", "share group", False),
                ("--stream", "stream", True),
                ("--from", "", True),
                ("--lock", "", False),
                ("--deliveries", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "share delete": (
            "Delete a share group with its progress.",
            [
                ("name", "share group", False),
                ("--dry-run", "flag", False),
                ("-y --yes", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "share describe": (
            "Show a share group: its options, lag, deliveries, the consumers that hold...",
            [
                ("name", "share group", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "share list": (
            "List the share groups of a scope, or of all scopes, with their lag and what...",
            [
                ("scope", "scope", False),
                ("--prefix", "", False),
                ("--after", "share group", False),
                ("--limit", "", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "share reset": (
            "Move a share group to another position.",
            [
                ("name", "share group", False),
                ("--to", "", True),
                ("--stream", "stream", True),
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
                ("--after", "", False),
                ("--limit", "", False),
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
        "supervisor": (
            "Submit, show, suspend, reset and terminate supervisors, which ingest streams...",
            [],
        ),
        "supervisor backfill": (
            "Go on with new events, and let a bounded supervisor publish what SUPERVISOR...",
            [
                ("name", "supervisor", False),
                ("--id", "", False),
                ("--task-count", "", False),
                ("--dry-run", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "supervisor describe": (
            "Show the spec of a supervisor: fields that differ from their defaults, as...",
            [
                ("name", "supervisor", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "supervisor handoff": (
            "Let groups publish what they have read now.",
            [
                ("name", "supervisor", False),
                ("--group", "", True),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "supervisor history": (
            "List the versions of a supervisor's spec, the newest first.",
            [
                ("name", "supervisor", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "supervisor lag": (
            "Show how far each partition was published and read, and the events behind that.",
            [
                ("name", "supervisor", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "supervisor list": (
            "List the supervisors that have not ended.",
            [
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "supervisor plot": (
            "Draw the lag of a supervisor since its beginning, and the rows of its table...",
            [
                ("name", "supervisor", False),
                ("file", "file", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "supervisor reset": (
            "Read again from another position; without --to, as the spec says for a first...",
            [
                ("name", "supervisor", False),
                ("--to", "", True),
                ("--dry-run", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "supervisor resume": (
            "Let a suspended supervisor go on, at its published offsets.",
            [
                ("name", "supervisor", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "supervisor shutdown": (
            "End a supervisor: Druid's former name of `terminate`.",
            [
                ("name", "supervisor", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "supervisor status": (
            "Show what a supervisor does: state, partitions with their lag, live tasks,...",
            [
                ("name", "supervisor", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "supervisor submit": (
            "Submit the spec in FILE, in JSON or YAML; - reads it from stdin.",
            [
                ("file", "file", False),
                ("--dry-run", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "supervisor suspend": (
            "Let the tasks of a supervisor publish and end, and create no others until...",
            [
                ("name", "supervisor", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "supervisor tasks": (
            "List the tasks with their reports, the oldest first; of those that ended, the...",
            [
                ("name", "supervisor", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "supervisor terminate": (
            "End a supervisor; its tasks publish first.",
            [
                ("name", "supervisor", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "ingest": (
            "Run the tasks of ingestion supervisors.",
            [],
        ),
        "ingest worker": (
            "Run ingestion tasks as Spark jobs, until SIGTERM or Ctrl-C.",
            [
                ("--slots", "", False),
                ("--master", "", False),
                ("--log-level", "debug|info|warning|error", False),
            ],
        ),
        "table": (
            "List, query, compact, overwrite and drop the tables that ingestion...",
            [],
        ),
        "table compact": (
            "Rewrite the intervals of a table that lie in several files into as few as...",
            [
                ("name", "", False),
                ("--start", "", False),
                ("--end", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "table describe": (
            "Show a table, and its published files by interval.",
            [
                ("name", "", False),
                ("--start", "", False),
                ("--end", "", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "table drop": (
            "Remove the rows of a table; with bounds, of the intervals that lie between them.",
            [
                ("name", "", False),
                ("--start", "", False),
                ("--end", "", False),
                ("--dry-run", "flag", False),
                ("-y --yes", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "table list": (
            "List the tables with their published files and rows.",
            [
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "table overwrite": (
            "Put the rows of a query in the place of all rows of a table between two...",
            [
                ("name", "", False),
                ("sql", "", False),
                ("--start", "", False),
                ("--end", "", False),
                ("--dry-run", "flag", False),
                ("-y --yes", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "table query": (
            "Run a query of Spark SQL over the tables, in a session of its own.",
            [
                ("sql", "", False),
                ("--realtime", "flag", False),
                ("--limit", "", False),
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
        "request new-id": (
            "Print a new id for --request-id.",
            [],
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
        "task": (
            "List, describe, wait for and cancel tasks: backups, offloads and deletions in...",
            [],
        ),
        "task cancel": (
            "Ask a task to end.",
            [
                ("task_id", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "task describe": (
            "Show a task: its progress, the instance that runs it, and its result or why...",
            [
                ("task_id", "", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "task list": (
            "List the newest tasks, the newest first.",
            [
                ("--limit", "", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "task wait": (
            "Wait until a task has ended.",
            [
                ("task_id", "", False),
                ("--timeout", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "cluster": (
            "List the instances that have the directory open, and what they share.",
            [],
        ),
        "cluster describe": (
            "Show the host, how often it changed, and what the instances share: the...",
            [
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "cluster list": (
            "List the instances that are alive, the oldest first.",
            [
                ("--watch", "", False),
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
        "serve": (
            "Serve the directory to Pravega's clients, and run the processors of apps,...",
            [
                ("apps", "", True),
                ("--listen", "", False),
                ("--advertise", "", False),
                ("--controller-port", "", False),
                ("--segment-store-port", "", False),
                ("--rest", "", False),
                ("--certificate", "file", False),
                ("--key", "file", False),
                ("--plain", "flag", False),
                ("--grace", "", False),
                ("--log-level", "debug|info|warning|error", False),
                ("--log-format", "text|json", False),
            ],
        ),
        "user": (
            "Add users of `eventproc serve`, with their permissions, passwords and tokens.",
            [],
        ),
        "user add": (
            "Add a user, who may do nothing yet.",
            [
                ("name", "", False),
                ("--no-password", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "user add-token": (
            "Make a token for a user, and print it; it cannot be shown again.",
            [
                ("name", "", False),
                ("token", "", False),
                ("--expires-in", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "user delete": (
            "Delete a user with its grants and tokens.",
            [
                ("name", "", False),
                ("--dry-run", "flag", False),
                ("-y --yes", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "user delete-token": (
            "Delete a token of a user.",
            [
                ("name", "", False),
                ("token", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "user describe": (
            "Show a user with its grants, and the names of its tokens.",
            [
                ("name", "", False),
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "user grant": (
            "Give a user a permission on PATTERN, in place of the one that it has there.",
            [
                ("name", "", False),
                ("permission", "READ|READ_UPDATE", False),
                ("pattern", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "user list": (
            "List the users.",
            [
                ("--watch", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "user password": (
            "Change the password of a user, which is read as by `user add`.",
            [
                ("name", "", False),
                ("--remove", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "user revoke": (
            "Take away what `user grant` gave a user on exactly this PATTERN.",
            [
                ("name", "", False),
                ("pattern", "", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "backup": (
            "Make a verified backup of the directory in the new folder DEST.",
            [
                ("dest", "", False),
                ("--dry-run", "flag", False),
                ("--background", "flag", False),
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
                ("--background", "flag", False),
                ("-o --output", "table|json|jsonl", False),
            ],
        ),
        "compact": (
            "Return the bytes of truncated and deleted events, and all else that is free...",
            [
                ("--background", "flag", False),
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
                ("--topics", "flag", False),
                ("--auto-scale", "flag", False),
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
