"""What is durable of reader groups and share groups: a record each, and rows of segments, members and deliveries.

`eventproc/groups/` decides what happens in a group. The records lie here, below the workflows, because deleting a scope
deletes its groups.
"""

from __future__ import annotations

from eventproc.store.groups.consumption import (
    allow_truncation as allow_truncation,
    consumed_cut as consumed_cut,
    consuming_groups as consuming_groups,
    cut_before as cut_before,
    earliest_cut as earliest_cut,
    group_cuts as group_cuts,
)
from eventproc.store.groups.kafka_groups import (
    begin_epoch as begin_epoch,
    commit_progress as commit_progress,
    committed_progress as committed_progress,
    find_members as find_members,
    forget_progress as forget_progress,
    hear_all as hear_all,
    is_kafka_group as is_kafka_group,
    read_notes as read_notes,
    watch_members as watch_members,
    write_members as write_members,
    write_note as write_note,
)
from eventproc.store.groups.kafka_members import (
    KafkaCommit as KafkaCommit,
    PendingCommits as PendingCommits,
)
from eventproc.store.groups.kafka_pending import (
    add_pending as add_pending,
    has_lapsed as has_lapsed,
    is_over as is_over,
    pending_keys as pending_keys,
    take_pending as take_pending,
)
from eventproc.store.groups.kafka_producers import (
    KAFKA_PRODUCER as KAFKA_PRODUCER,
    TransactionalProducer as TransactionalProducer,
    forget_producers as forget_producers,
)
from eventproc.store.groups.records import (
    EQUAL as EQUAL,
    GROUP as GROUP,
    GROUPS as GROUPS,
    KAFKA as KAFKA,
    OWNED as OWNED,
    PRAVEGA as PRAVEGA,
    PROCESSOR as PROCESSOR,
    READERS as READERS,
    SHARE as SHARE,
    TRUNCATABLE as TRUNCATABLE,
    DeletedPolicy as DeletedPolicy,
    GroupKind as GroupKind,
    GroupOptions as GroupOptions,
    GroupRecord as GroupRecord,
    GroupStream as GroupStream,
    RetainedPart as RetainedPart,
    ShareOptions as ShareOptions,
    TruncatedPolicy as TruncatedPolicy,
    channel_of as channel_of,
    get_group as get_group,
    group_names as group_names,
    last_generation as last_generation,
    readable_group as readable_group,
    streams_of_group as streams_of_group,
    truncatable_key as truncatable_key,
    watch_groups as watch_groups,
    with_patience as with_patience,
)
from eventproc.store.groups.rows import (
    SegmentKey as SegmentKey,
    SegmentProgress as SegmentProgress,
    delete_group as delete_group,
    delete_member as delete_member,
    delete_segment_rows as delete_segment_rows,
    epoch_of_member as epoch_of_member,
    find_progress as find_progress,
    insert_member as insert_member,
    last_heard as last_heard,
    member_instances as member_instances,
    note_committed as note_committed,
    online_members as online_members,
    progress_by_segment as progress_by_segment,
    progress_channel as progress_channel,
    progress_of as progress_of,
    progress_times as progress_times,
    silent_members as silent_members,
    stored_assignments as stored_assignments,
    stored_members as stored_members,
    stored_waits as stored_waits,
    watch_group as watch_group,
    watch_progress as watch_progress,
    write_heartbeat as write_heartbeat,
    write_heartbeats as write_heartbeats,
    write_owner as write_owner,
    write_segment as write_segment,
    write_status as write_status,
    write_waiting as write_waiting,
)
from eventproc.store.groups.share_groups import (
    SHARE_POLL_EVENTS as SHARE_POLL_EVENTS,
    DeliveryCounts as DeliveryCounts,
    TakenIn as TakenIn,
    add_share_stream as add_share_stream,
    count_deliveries as count_deliveries,
    delete_deliveries as delete_deliveries,
    first_available_ms as first_available_ms,
    followed as followed,
    has_finished_share as has_finished_share,
    lock_instances as lock_instances,
    open_new_segments as open_new_segments,
    priorities_of as priorities_of,
    read_available as read_available,
    read_deliveries as read_deliveries,
    read_held as read_held,
    read_ranges as read_ranges,
    read_taken_in as read_taken_in,
    replace_share as replace_share,
    start_share_group as start_share_group,
    unopened_segments as unopened_segments,
    watch_share as watch_share,
    write_deliveries as write_deliveries,
)
from eventproc.store.model.limits import DELIVERIES_MAX as DELIVERIES_MAX, LOCK_MS as LOCK_MS
