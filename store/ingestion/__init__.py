"""What is durable of ingestion: specs, notices, committed offsets, task groups, tasks, sequences, published files."""

from __future__ import annotations

from eventproc.store.ingestion.notices import (
    RUN as RUN,
    StoredNotice as StoredNotice,
    announce as announce,
    post_notice as post_notice,
    remove_notice as remove_notice,
    waiting_notices as waiting_notices,
)
from eventproc.store.ingestion.publish import publish as publish
from eventproc.store.ingestion.rows import (
    IngestOffset as IngestOffset,
    find_task as find_task,
    read_groups as read_groups,
    read_offsets as read_offsets,
    read_tasks as read_tasks,
)
from eventproc.store.ingestion.supervisors import (
    SpecVersion as SpecVersion,
    add_spec as add_spec,
    find_spec as find_spec,
    get_live_spec as get_live_spec,
    get_spec_text as get_spec_text,
    spec_versions as spec_versions,
    supervisor_ids as supervisor_ids,
)
from eventproc.store.ingestion.tasks import (
    TaskOrder as TaskOrder,
    claim_tasks as claim_tasks,
    close_sequence as close_sequence,
    finish_task as finish_task,
    forget_dead_workers as forget_dead_workers,
    forget_worker as forget_worker,
    keep_task as keep_task,
    keep_worker as keep_worker,
    own_tasks as own_tasks,
    plan_slice as plan_slice,
    read_workers as read_workers,
    register_worker as register_worker,
)
from eventproc.store.task_queue import WATCH_INGESTION as WATCH_INGESTION
