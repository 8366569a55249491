"""The one table of routes: paths of Pravega's controller, and those of an operator."""

from __future__ import annotations

from functools import partial
from typing import Final

from eventproc.server.access.needs import ANYONE, UPDATE_SCOPE, UPDATE_SERVER, USER
from eventproc.server.rest import (
    group_calls as groups,
    health_calls as health,
    history_calls as history,
    operator_calls as operator,
    pravega_calls as pravega,
    processor_calls as processors,
    supervisor_calls as supervisors,
    topic_calls as topics,
    user_calls as users,
)
from eventproc.server.rest.routes import RestRoute, route

OWN: Final = "/eventproc/v1"
"""Begins the paths that are not Pravega's."""

_SCOPE: Final = "/v1/scopes/{scope}"
_STREAM: Final = f"{_SCOPE}/streams/{{stream}}"
_GROUP: Final = f"{_SCOPE}/readergroups/{{group}}"
_OWN_STREAM: Final = f"{OWN}/streams/{{scope}}/{{stream}}"
_USER: Final = f"{OWN}/users/{{user}}"
_TRANSACTION: Final = f"{_OWN_STREAM}/transactions/{{transaction}}"
_OWN_GROUP: Final = f"{OWN}/groups/{{scope}}/{{group}}"

_SHARE: Final = f"{OWN}/shares/{{scope}}/{{group}}"
_TOPIC: Final = f"{OWN}/topics/{{scope}}/{{stream}}"
_PROCESSOR: Final = f"{OWN}/processors/{{scope}}/{{group}}"
_LETTERS: Final = f"{_PROCESSOR}/dead-letters"
_SUPERVISOR: Final = f"{OWN}/supervisors/{{supervisor}}"

_scopes = partial(route, tag="scopes")
_streams = partial(route, tag="streams")
_groups = partial(route, tag="reader groups")
_health = partial(route, tag="health", need=ANYONE)
_operation = partial(route, tag="operation")
_shares = partial(route, tag="share groups")
_topics = partial(route, tag="topics")
_processors = partial(route, tag="processors")
_supervisors = partial(route, tag="supervisors")
_users = partial(route, tag="users")

ROUTES: Final[tuple[RestRoute, ...]] = (
    _scopes("GET", "/v1/scopes", pravega.list_scopes, need=USER),
    _scopes("POST", "/v1/scopes", pravega.create_scope, status=201, errors=(409,)),
    _scopes("GET", _SCOPE, pravega.get_scope_of, errors=(404,)),
    _scopes("DELETE", _SCOPE, pravega.delete_scope, status=204, errors=(404, 412), need=UPDATE_SERVER),
    _streams("GET", f"{_SCOPE}/streams", pravega.list_streams, errors=(404,)),
    _streams("POST", f"{_SCOPE}/streams", pravega.create_stream, status=201, errors=(404, 409), submits=True),
    _streams("GET", _STREAM, pravega.get_stream_of, errors=(404,)),
    _streams("PUT", _STREAM, pravega.update_stream, errors=(404, 409), submits=True),
    _streams(
        "DELETE",
        _STREAM,
        pravega.delete_stream,
        status=204,
        errors=(404, 412),
        submits=True,
        need=UPDATE_SCOPE,
    ),
    _streams("PUT", f"{_STREAM}/state", pravega.update_stream_state, errors=(404,), submits=True),
    _streams("GET", f"{_STREAM}/scaling-events", pravega.get_scaling_events, errors=(404,)),
    _groups("GET", f"{_SCOPE}/readergroups", pravega.list_reader_groups, errors=(404,)),
    _groups("GET", _GROUP, pravega.get_reader_group, errors=(404,)),
    _groups("DELETE", _GROUP, pravega.delete_reader_group, status=204, errors=(404,)),
    _health("GET", "/v1/health", health.get_health, need=USER),
    _health("GET", "/v1/health/status", health.get_status),
    _health("GET", "/v1/health/readiness", health.get_readiness),
    _health("GET", "/v1/health/liveness", health.get_liveness),
    _health("GET", "/v1/health/details", health.get_details, need=USER),
    _health("GET", "/v1/health/status/{part}", health.get_part_status, errors=(404,)),
    _health("GET", "/v1/health/readiness/{part}", health.get_part_readiness, errors=(404,)),
    _health("GET", "/v1/health/liveness/{part}", health.get_part_liveness, errors=(404,)),
    _health("GET", "/v1/health/details/{part}", health.get_part_details, errors=(404,), need=USER),
    _health("GET", "/v1/health/{part}", health.get_part_health, errors=(404,), need=USER),
    _streams("GET", f"{OWN}/streams", operator.list_all_streams, errors=(404,)),
    _streams("GET", _OWN_STREAM, operator.describe_stream, errors=(404,)),
    _streams("GET", f"{_OWN_STREAM}/segments", operator.list_segments, errors=(404,)),
    _streams("GET", f"{_OWN_STREAM}/epochs", operator.list_epochs, errors=(404,)),
    _streams("GET", f"{_OWN_STREAM}/cut", operator.get_cut, errors=(404,)),
    _streams("GET", f"{_OWN_STREAM}/sealed-segments", history.list_sealed_segments, errors=(404,)),
    _streams("GET", f"{_OWN_STREAM}/segments-between", history.list_segments_between, errors=(404,)),
    _streams("GET", f"{_OWN_STREAM}/segments/{{segment}}", history.describe_segment, errors=(404,)),
    _streams("GET", f"{_OWN_STREAM}/scales", history.list_scales, errors=(404,)),
    _streams("GET", f"{_OWN_STREAM}/size", history.measure_stream, errors=(404, 410)),
    _streams("GET", f"{_OWN_STREAM}/compare", history.compare_stream_cuts, errors=(404,)),
    _streams("GET", f"{_OWN_STREAM}/truncation", history.get_truncation, errors=(404,)),
    _streams("POST", f"{_OWN_STREAM}/scale", operator.scale_stream, errors=(404, 409), submits=True),
    _streams("POST", f"{_OWN_STREAM}/split", operator.split_segment, errors=(404, 409), submits=True),
    _streams("POST", f"{_OWN_STREAM}/merge", operator.merge_segments, errors=(404, 409), submits=True),
    _streams("POST", f"{_OWN_STREAM}/truncate", operator.truncate_stream, errors=(404, 409), submits=True),
    _streams("POST", f"{_OWN_STREAM}/offload", operator.offload_stream, status=202, errors=(404,)),
    _streams("GET", f"{_OWN_STREAM}/transactions", operator.list_transactions, errors=(404,)),
    _streams("GET", _TRANSACTION, operator.describe_transaction, errors=(404,)),
    _streams("POST", f"{_TRANSACTION}/commit", operator.commit_transaction, errors=(404, 409)),
    _streams(
        "POST",
        f"{_TRANSACTION}/abort",
        operator.abort_transaction,
        errors=(404, 409),
    ),
    _groups("GET", f"{OWN}/groups", operator.list_groups, errors=(404,)),
    _groups("GET", _OWN_GROUP, operator.describe_group, errors=(404,)),
    _groups("POST", f"{_OWN_GROUP}/reset", operator.reset_group, errors=(404, 409, 410)),
    _groups("POST", f"{OWN}/groups/{{scope}}", groups.create_group, status=201, errors=(404, 409)),
    _groups("PUT", f"{_OWN_GROUP}/options", groups.update_group, errors=(404, 409)),
    _groups("POST", f"{_OWN_GROUP}/checkpoints", groups.create_checkpoint, status=201, errors=(404, 409)),
    _groups("GET", f"{_OWN_GROUP}/checkpoints", groups.list_checkpoints, errors=(404,)),
    _groups(
        "POST",
        f"{_OWN_GROUP}/readers/{{reader}}/offline",
        groups.take_reader_offline,
        status=204,
        errors=(404,),
    ),
    _groups("GET", f"{_OWN_GROUP}/offsets", groups.list_offsets, errors=(404, 409)),
    _shares("GET", f"{OWN}/shares", groups.list_shares, errors=(404,)),
    _shares("POST", f"{OWN}/shares/{{scope}}", groups.create_share, status=201, errors=(404, 409)),
    _shares("GET", _SHARE, groups.describe_share, errors=(404,)),
    _shares("POST", f"{_SHARE}/reset", groups.reset_share, errors=(404, 409, 410)),
    _shares("DELETE", _SHARE, groups.delete_share, status=204, errors=(404,)),
    _topics("GET", f"{OWN}/topics", topics.list_topics, errors=(404,)),
    _topics(
        "POST", f"{OWN}/topics/{{scope}}", topics.create_topic, status=201, errors=(404, 409), submits=True
    ),
    _topics("GET", _TOPIC, topics.describe_topic, errors=(404, 409)),
    _topics("POST", f"{_TOPIC}/alter", topics.alter_topic, errors=(404, 409), submits=True),
    _topics("POST", f"{_TOPIC}/truncate", topics.truncate_topic, errors=(404, 409), submits=True),
    _topics(
        "DELETE",
        _TOPIC,
        topics.delete_topic,
        status=204,
        errors=(404, 409),
        submits=True,
        need=UPDATE_SCOPE,
    ),
    _processors("GET", f"{OWN}/processors", processors.list_processors),
    _processors("GET", _PROCESSOR, processors.describe_processor, errors=(404,)),
    _processors("POST", f"{_PROCESSOR}/pause", processors.pause_processor, errors=(404,)),
    _processors("POST", f"{_PROCESSOR}/resume", processors.resume_processor, errors=(404,)),
    _processors("GET", _LETTERS, processors.list_dead_letters, errors=(404,)),
    _processors("GET", f"{_LETTERS}/{{letter}}", processors.describe_dead_letter, errors=(404,)),
    _processors("POST", f"{_LETTERS}/redrive", processors.redrive_dead_letters, errors=(404, 409)),
    _processors("POST", f"{_LETTERS}/drop", processors.drop_dead_letters, errors=(404,)),
    _supervisors("GET", f"{OWN}/supervisors", supervisors.list_supervisors),
    _supervisors("POST", f"{OWN}/supervisors", supervisors.submit_supervisor, errors=(404, 409)),
    _supervisors("GET", _SUPERVISOR, supervisors.describe_supervisor, errors=(404,)),
    _supervisors("GET", f"{_SUPERVISOR}/versions", supervisors.list_supervisor_versions, errors=(404,)),
    _supervisors("GET", f"{_SUPERVISOR}/tasks", supervisors.list_supervisor_tasks, errors=(404,)),
    _supervisors("GET", f"{_SUPERVISOR}/lags", supervisors.list_supervisor_lags, errors=(404,)),
    _supervisors("POST", f"{_SUPERVISOR}/suspend", supervisors.suspend_supervisor, errors=(404, 409)),
    _supervisors("POST", f"{_SUPERVISOR}/resume", supervisors.resume_supervisor, errors=(404, 409)),
    _supervisors("POST", f"{_SUPERVISOR}/terminate", supervisors.terminate_supervisor, errors=(404, 409)),
    _supervisors("POST", f"{_SUPERVISOR}/handoff", supervisors.hand_off_supervisor, errors=(404, 409)),
    _supervisors("POST", f"{_SUPERVISOR}/reset", supervisors.reset_supervisor, errors=(404, 409)),
    _operation("POST", f"{OWN}/verify", operator.verify_directory, status=202),
    _operation("POST", f"{OWN}/compact", operator.compact_directory, status=202),
    _scopes(
        "DELETE",
        f"{OWN}/scopes/{{scope}}",
        operator.delete_scope_with_streams,
        status=202,
        errors=(404,),
        need=UPDATE_SERVER,
    ),
    _operation("GET", f"{OWN}/tasks", operator.list_tasks),
    _operation("GET", f"{OWN}/tasks/{{task}}", operator.describe_task, errors=(404,)),
    _operation("POST", f"{OWN}/tasks/{{task}}/cancel", operator.cancel_task, errors=(404,)),
    _operation("GET", f"{OWN}/requests", operator.list_requests),
    _operation("GET", f"{OWN}/requests/{{request}}", operator.describe_request, errors=(404,), need=USER),
    _operation("GET", f"{OWN}/cluster", operator.describe_cluster),
    _operation("GET", f"{OWN}/changes", operator.watch_changes, need=USER),
    _users("GET", f"{OWN}/users", users.list_users),
    _users("POST", f"{OWN}/users", users.add_user, status=201, errors=(409,)),
    _users("GET", _USER, users.describe_user, errors=(404,)),
    _users("DELETE", _USER, users.delete_user, status=204, errors=(404,)),
    _users("PUT", f"{_USER}/password", users.set_password, status=204, errors=(404,)),
    _users("POST", f"{_USER}/grants", users.grant_permission, errors=(404,)),
    _users("DELETE", f"{_USER}/grants", users.revoke_permission, errors=(404,)),
    _users("POST", f"{_USER}/tokens", users.add_token, status=201, errors=(404, 409)),
    _users("DELETE", f"{_USER}/tokens/{{token}}", users.delete_token, status=204, errors=(404,)),
)
"""Every route, and nothing else, is in the document. Of two that fit a path, the first one answers."""
