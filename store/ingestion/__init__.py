"""What is durable of ingestion: specs, notices, committed offsets, task groups, tasks, sequences, published files."""

from __future__ import annotations

from eventproc.store.ingestion.notices import (
    RUN,
    StoredNotice,
    announce,
    post_notice,
    remove_notice,
    waiting_notices,
)
from eventproc.store.ingestion.publish import publish
from eventproc.store.ingestion.rows import (
    IngestOffset,
    find_group,
    find_task,
    read_groups,
    read_offsets,
    read_tasks,
)
from eventproc.store.ingestion.supervisors import (
    SpecVersion,
    add_spec,
    find_spec,
    get_live_spec,
    get_spec_text,
    spec_versions,
    supervisor_ids,
)
from eventproc.store.ingestion.tasks import (
    IngestWorker,
    TaskOrder,
    claim_tasks,
    close_sequence,
    finish_task,
    forget_dead_workers,
    forget_worker,
    keep_task,
    keep_worker,
    own_tasks,
    plan_slice,
    read_workers,
    register_worker,
)
from eventproc.store.task_queue import INGEST_CHANNEL, watch_ingestion

__all__ = [
    "INGEST_CHANNEL",
    "RUN",
    "IngestOffset",
    "IngestWorker",
    "SpecVersion",
    "StoredNotice",
    "TaskOrder",
    "add_spec",
    "announce",
    "claim_tasks",
    "close_sequence",
    "find_group",
    "find_spec",
    "find_task",
    "finish_task",
    "forget_dead_workers",
    "forget_worker",
    "get_live_spec",
    "get_spec_text",
    "keep_task",
    "keep_worker",
    "own_tasks",
    "plan_slice",
    "post_notice",
    "publish",
    "read_groups",
    "read_offsets",
    "read_tasks",
    "read_workers",
    "register_worker",
    "remove_notice",
    "spec_versions",
    "supervisor_ids",
    "waiting_notices",
    "watch_ingestion",
]
