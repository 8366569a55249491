"""The host and the workers: which open instance does what in the background of a directory."""

from __future__ import annotations

from eventproc.cluster.buckets import keep_buckets as keep_buckets
from eventproc.cluster.host import run_host as run_host
from eventproc.cluster.membership import (
    Cluster as Cluster,
    ClusterChange as ClusterChange,
    ClusterDescription as ClusterDescription,
    ClusterInstance as ClusterInstance,
    ClusterServer as ClusterServer,
    InstanceAdded as InstanceAdded,
    InstanceRemoved as InstanceRemoved,
)
from eventproc.cluster.policies import keep_policies as keep_policies
from eventproc.cluster.supervisor_runs import keep_supervisors as keep_supervisors
from eventproc.cluster.task_jobs import (
    FILE_WORK as FILE_WORK,
    TASK_JOBS as TASK_JOBS,
    AnyTask as AnyTask,
    BackupTask as BackupTask,
    CompactTask as CompactTask,
    DeleteScopeTask as DeleteScopeTask,
    VerifyTask as VerifyTask,
)
from eventproc.cluster.task_runner import run_tasks as run_tasks
from eventproc.workflows.policies import CompactTopicTask as CompactTopicTask, OffloadTask as OffloadTask
