"""The host and the workers: which open instance does what in the background of a directory."""

from __future__ import annotations

from eventproc.cluster.buckets import keep_buckets
from eventproc.cluster.host import run_host
from eventproc.cluster.membership import (
    Cluster,
    ClusterChange,
    ClusterDescription,
    ClusterInstance,
    ClusterServer,
    InstanceAdded,
    InstanceRemoved,
)
from eventproc.cluster.policies import keep_policies
from eventproc.cluster.supervisor_runs import keep_supervisors
from eventproc.cluster.task_jobs import (
    FILE_WORK,
    TASK_JOBS,
    AnyTask,
    BackupTask,
    CompactTask,
    DeleteScopeTask,
    VerifyTask,
)
from eventproc.cluster.task_runner import run_tasks
from eventproc.workflows.policies import CompactTopicTask, OffloadTask

__all__ = [
    "FILE_WORK",
    "TASK_JOBS",
    "AnyTask",
    "BackupTask",
    "Cluster",
    "ClusterChange",
    "ClusterDescription",
    "ClusterInstance",
    "ClusterServer",
    "CompactTask",
    "CompactTopicTask",
    "DeleteScopeTask",
    "InstanceAdded",
    "InstanceRemoved",
    "OffloadTask",
    "VerifyTask",
    "keep_buckets",
    "keep_policies",
    "keep_supervisors",
    "run_host",
    "run_tasks",
]
