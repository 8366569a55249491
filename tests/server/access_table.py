"""What each route of REST, method of the controller and command of the segment store needs, as data, for every test.

The table is written beside the product's own tables and shares nothing with them, so that a row that is wrong in one
of the two is found. `tests/server/test_access_table.py` tries every row as every user of `access_support.GRANTS`, on a
stream of each of `SCOPES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventproc.server.wire import commands as c
from eventproc.server.wire.codec import Message
from eventproc.store.access.permissions import Permission
from tests.server.access_support import READ, UPDATE

SCOPES = ("s", "other")
"""Each has a stream `t`. Users are permitted to different things in the two."""

ANYONE, USER = "anyone", "user"
IF_FOUND = "those who may read what it is made of; those who may read everything, if it does not exist"
READS, READS_SCOPE, READS_SERVER = (READ, "{scope}/t"), (READ, "{scope}"), (READ, "*")
UPDATES, UPDATES_SCOPE, UPDATES_SERVER = (UPDATE, "{scope}/t"), (UPDATE, "{scope}"), (UPDATE, "*")

Row = tuple[Permission, str] | str
"""A permission on a resource, or who else may call."""

REST: Mapping[str, Row] = {
    "list_scopes": USER,
    "create_scope": UPDATES_SERVER,
    "get_scope_of": READS_SCOPE,
    "delete_scope": UPDATES_SERVER,
    "list_streams": USER,
    "create_stream": UPDATES_SCOPE,
    "get_stream_of": READS,
    "update_stream": UPDATES,
    "delete_stream": UPDATES_SCOPE,
    "update_stream_state": UPDATES,
    "get_scaling_events": READS,
    "list_reader_groups": USER,
    "get_reader_group": READS,
    "delete_reader_group": UPDATES,
    "get_health": USER,
    "get_status": ANYONE,
    "get_readiness": ANYONE,
    "get_liveness": ANYONE,
    "get_details": USER,
    "get_part_status": ANYONE,
    "get_part_readiness": ANYONE,
    "get_part_liveness": ANYONE,
    "get_part_details": USER,
    "get_part_health": USER,
    "get_healthz": ANYONE,
    "get_readyz": ANYONE,
    "get_overview": USER,
    "list_all_streams": USER,
    "describe_stream": READS,
    "list_segments": READS,
    "list_epochs": READS,
    "get_cut": READS,
    "list_sealed_segments": READS,
    "list_segments_between": READS,
    "describe_segment": READS,
    "list_scales": READS,
    "measure_stream": READS,
    "plot_stream": READS,
    "list_events": READS,
    "compare_stream_cuts": READS,
    "get_truncation": READS,
    "scale_stream": UPDATES,
    "split_segment": UPDATES,
    "merge_segments": UPDATES,
    "truncate_stream": UPDATES,
    "list_transactions": READS,
    "abort_transaction": UPDATES,
    "list_groups": USER,
    "describe_group": READS,
    "reset_group": UPDATES,
    "list_schedules": USER,
    "describe_schedule": READS,
    "create_schedule": UPDATES,
    "pause_schedule": UPDATES,
    "resume_schedule": UPDATES,
    "delete_schedule": UPDATES,
    "list_jobs": READS,
    "describe_job": READS,
    "submit_job": UPDATES,
    "cancel_job": UPDATES,
    "retry_job": UPDATES,
    "list_delayed": READS,
    "describe_delayed": READS,
    "cancel_delayed": UPDATES,
    "move_delayed": UPDATES,
    "commit_partitions": UPDATES,
    "reset_partitions": UPDATES,
    "list_tasks": READS_SERVER,
    "describe_task": READS_SERVER,
    "cancel_task": UPDATES_SERVER,
    "list_requests": USER,
    "describe_request": IF_FOUND,
    "describe_cluster": READS_SERVER,
    "watch_changes": USER,
    "describe_caller": USER,
    "offload_stream": UPDATES,
    "compact_topic": UPDATES,
    "describe_transaction": READS,
    "commit_transaction": UPDATES,
    "create_group": UPDATES_SCOPE,
    "update_group": UPDATES,
    "create_checkpoint": UPDATES,
    "list_checkpoints": READS,
    "take_reader_offline": UPDATES,
    "list_group_partitions": READS,
    "measure_states": READS,
    "list_states": READS,
    "describe_key_state": READS,
    "drop_states": UPDATES,
    "drop_key_state": UPDATES,
    "list_shares": USER,
    "create_share": UPDATES_SCOPE,
    "describe_share": READS,
    "reset_share": UPDATES,
    "update_share": UPDATES,
    "take_consumer_offline": UPDATES,
    "delete_share": UPDATES,
    "list_topics": USER,
    "create_topic": UPDATES_SCOPE,
    "describe_topic": READS,
    "list_positions": READS,
    "alter_topic": UPDATES,
    "truncate_topic": UPDATES,
    "delete_topic": UPDATES_SCOPE,
    "list_processors": USER,
    "describe_processor": READS,
    "pause_processor": UPDATES,
    "resume_processor": UPDATES,
    "list_dead_letters": READS,
    "describe_dead_letter": READS,
    "redrive_dead_letters": UPDATES,
    "drop_dead_letters": UPDATES,
    "list_supervisors": USER,
    "submit_supervisor": UPDATES_SERVER,
    "describe_supervisor": IF_FOUND,
    "suspend_all_supervisors": UPDATES_SERVER,
    "resume_all_supervisors": UPDATES_SERVER,
    "terminate_all_supervisors": UPDATES_SERVER,
    "check_supervisor": IF_FOUND,
    "backfill_supervisor": UPDATES_SERVER,
    "list_ingestion_workers": READS_SERVER,
    "get_ingestion_log": READS_SERVER,
    "list_tables": USER,
    "describe_table": IF_FOUND,
    "drop_table": UPDATES_SERVER,
    "list_supervisor_versions": IF_FOUND,
    "list_supervisor_tasks": IF_FOUND,
    "list_supervisor_lags": IF_FOUND,
    "suspend_supervisor": UPDATES_SERVER,
    "resume_supervisor": UPDATES_SERVER,
    "terminate_supervisor": UPDATES_SERVER,
    "hand_off_supervisor": UPDATES_SERVER,
    "reset_supervisor": UPDATES_SERVER,
    "verify_directory": UPDATES_SERVER,
    "compact_directory": UPDATES_SERVER,
    "delete_scope_with_streams": UPDATES_SERVER,
    "list_users": READS_SERVER,
    "describe_user": READS_SERVER,
    "add_user": UPDATES_SERVER,
    "delete_user": UPDATES_SERVER,
    "set_password": UPDATES_SERVER,
    "grant_permission": UPDATES_SERVER,
    "revoke_permission": UPDATES_SERVER,
    "add_token": UPDATES_SERVER,
    "delete_token": UPDATES_SERVER,
}
"""What each route of REST needs, for the stream or group `{scope}/t`."""

GRPC: Mapping[str, Row] = {
    "getControllerServerList": ANYONE,
    "createStream": UPDATES_SCOPE,
    "updateStream": UPDATES,
    "truncateStream": UPDATES,
    "sealStream": UPDATES,
    "deleteStream": UPDATES_SCOPE,
    "getCurrentSegments": READS,
    "getEpochSegments": READS,
    "getSegments": READS,
    "getSegmentsImmediatlyFollowing": READS,
    "getSegmentsImmediatelyFollowing": READS,
    "getSegmentsBetween": READS,
    "scale": UPDATES,
    "checkScale": READS,
    "getURI": READS,
    "isSegmentValid": READS,
    "isStreamCutValid": READS,
    "createTransaction": UPDATES,
    "commitTransaction": UPDATES,
    "abortTransaction": UPDATES,
    "pingTransaction": UPDATES,
    "checkTransactionState": READS,
    "listCompletedTransactions": READS,
    "createScope": UPDATES_SERVER,
    "listScopes": USER,
    "checkScopeExists": READS_SCOPE,
    "checkStreamExists": READS,
    "listStreamsInScope": USER,
    "deleteScope": UPDATES_SERVER,
    "deleteScopeRecursive": UPDATES_SERVER,
    "getDelegationToken": READS,
    "removeWriter": UPDATES,
    "noteTimestampFromWriter": UPDATES,
    "createKeyValueTable": UPDATES_SCOPE,
    "getCurrentSegmentsKeyValueTable": READS,
    "listKeyValueTablesInScope": USER,
    "getKeyValueTableConfiguration": READS,
    "deleteKeyValueTable": UPDATES_SCOPE,
    "listSubscribers": READS,
    "updateSubscriberStreamCut": UPDATES,
    "createReaderGroup": UPDATES_SCOPE,
    "getReaderGroupConfig": READS,
    "deleteReaderGroup": UPDATES_SCOPE,
    "updateReaderGroup": UPDATES,
    "getStreamConfiguration": READS,
    "listStreamsInScopeForTag": USER,
    "getControllerToBucketMapping": READS_SERVER,
}
"""What each method of the controller needs, for `{scope}/t`."""

WRITER = "the token of its writer"
NOTHING = "nothing"

WIRE: Mapping[type[Message], Permission | str] = {
    c.Hello: NOTHING,
    c.Padding: NOTHING,
    c.PartialEvent: NOTHING,
    c.KeepAlive: NOTHING,
    c.SetupAppend: UPDATE,
    c.AppendBlock: WRITER,
    c.AppendBlockEnd: WRITER,
    c.ConditionalAppend: WRITER,
    c.ConditionalBlockEnd: WRITER,
    c.ReadSegment: READ,
    c.GetStreamSegmentInfo: READ,
    c.TruncateSegment: UPDATE,
    c.GetSegmentAttribute: READ,
    c.UpdateSegmentAttribute: UPDATE,
    c.CreateTransientSegment: UPDATE,
    c.MergeSegments: UPDATE,
    c.GetTableSegmentInfo: READ,
    c.CreateTableSegment: UPDATE,
    c.DeleteTableSegment: UPDATE,
    c.UpdateTableEntries: UPDATE,
    c.RemoveTableKeys: UPDATE,
    c.ReadTable: READ,
    c.ReadTableKeys: READ,
    c.ReadTableEntries: READ,
    c.ReadTableEntriesDelta: READ,
}
"""What each command of the segment store needs, on the stream or table that it names."""


def command_of(kind: type[Message], segment: str, token: str) -> Message:
    """Return a command about a segment."""
    by_encoding: dict[str, Any] = {"text": "", "uuid": bytes(16), "flag": False, "block": b"", "rest": b""}
    values: list[Any] = []
    for name, encoding, _ in kind._fields:
        value = () if encoding.is_list else by_encoding.get(encoding.name, 0)
        values.append(
            segment if name in ("segment", "parent", "target") else token if name == "token" else value
        )
    return kind(*values)
