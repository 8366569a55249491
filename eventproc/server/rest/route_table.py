"""The one table of routes: paths of Pravega's controller, and those of an operator."""

from __future__ import annotations

from functools import partial
from typing import Final

from eventproc.server.access.needs import ANYONE, UPDATE_SCOPE, UPDATE_SERVER, USER
from eventproc.server.rest import health_calls as health
from eventproc.server.rest import history_calls as history
from eventproc.server.rest import operator_calls as operator
from eventproc.server.rest import pravega_calls as pravega
from eventproc.server.rest import user_calls as users
from eventproc.server.rest.routes import RestRoute, route

OWN: Final = "/eventproc/v1"
"""Begins the paths that are not Pravega's."""

_SCOPE: Final = "/v1/scopes/{scope}"
_STREAM: Final = f"{_SCOPE}/streams/{{stream}}"
_GROUP: Final = f"{_SCOPE}/readergroups/{{group}}"
_OWN_STREAM: Final = f"{OWN}/streams/{{scope}}/{{stream}}"
_USER: Final = f"{OWN}/users/{{user}}"
_OWN_GROUP: Final = f"{OWN}/groups/{{scope}}/{{group}}"

_scopes = partial(route, tag="scopes")
_streams = partial(route, tag="streams")
_groups = partial(route, tag="reader groups")
_health = partial(route, tag="health", need=ANYONE)
_operation = partial(route, tag="operation")
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
    _streams("GET", f"{_OWN_STREAM}/transactions", operator.list_transactions, errors=(404,)),
    _streams(
        "POST",
        f"{_OWN_STREAM}/transactions/{{transaction}}/abort",
        operator.abort_transaction,
        errors=(404, 409),
    ),
    _groups("GET", f"{OWN}/groups", operator.list_groups, errors=(404,)),
    _groups("GET", _OWN_GROUP, operator.describe_group, errors=(404,)),
    _groups("POST", f"{_OWN_GROUP}/reset", operator.reset_group, errors=(404, 409, 410)),
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
