"""The one table of routes: paths of Pravega's controller, and those of an operator."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import attrs

from eventproc.cluster import Cluster
from eventproc.ingestion.supervisor import Supervisor
from eventproc.jobs.jobs import Job, Jobs
from eventproc.processors.key_states import KeyStates
from eventproc.runtime import Eventproc
from eventproc.runtime.lists import ListSystem
from eventproc.runtime.tasks import Tasks
from eventproc.runtime.users import Users
from eventproc.server.access.needs import ANYONE, UPDATE_SCOPE, UPDATE_SERVER, USER, Need
from eventproc.server.rest import (
    event_calls as events,
    group_calls as groups,
    health_calls as health,
    job_calls as jobs,
    operator_calls as operator,
    pravega_calls as pravega,
    schedule_calls as schedules,
)
from eventproc.server.rest.group_calls import GROUP, PROCESSOR, SHARE, STATE, TOPIC
from eventproc.server.rest.method_answers import (
    DIRECTORY,
    Target,
    calling,
    changing,
)
from eventproc.server.rest.operator_calls import (
    CHANGEABLE,
    CLUSTER,
    LISTS,
    SEEN_SUPERVISOR,
    SEEN_TABLE,
    STREAM,
    SUPERVISOR,
    TASKS,
    USERS,
    At,
    Cut,
    ReadPosition,
    RowTimeText,
    Time,
)
from eventproc.server.rest.routes import RestRoute, route
from eventproc.shares import ShareGroup
from eventproc.streams import Stream
from eventproc.streams.delayed_events import DelayedEvents
from eventproc.streams.operations import MergeNeighbours, SplitSegment, TruncateTo
from eventproc.streams.schedules import Schedules
from eventproc.topics import Group, Topic
from eventproc.topics.operations import TruncatePartitions
from eventproc.workflows.requests import ScaleStream

OWN: Final = "/eventproc/v1"
"""Begins the paths that are not Pravega's."""

_SCOPE: Final = "/v1/scopes/{scope}"
_STREAM: Final = f"{_SCOPE}/streams/{{stream}}"
_GROUP: Final = f"{_SCOPE}/readergroups/{{group}}"

_scopes = partial(route, tag="scopes")
_streams = partial(route, tag="streams")
_groups = partial(route, tag="reader groups")
_probe = partial(route, "GET", tag="health", errors=(503,), need=ANYONE)

_TAGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{
            each: each
            for each in (
                "jobs",
                "processors",
                "scopes",
                "streams",
                "supervisors",
                "tables",
                "topics",
                "users",
            )
        },
        "groups": "reader groups",
        "ingestion": "supervisors",
        "shares": "share groups",
    }
)
"""Group routes in the document, by what their paths begin with."""


@attrs.frozen
class _Noun:
    """Makes the routes below a path. target: whose methods answer. tag: None: that of what the path begins with."""

    path: str
    target: Target = DIRECTORY
    tag: str | None = None

    def __call__(
        self,
        method: str,
        below: str,
        does: Any,
        name: str = "",
        *,
        status: int = 200,
        errors: tuple[int, ...] = (),
        submits: bool = False,
        has_dry_run: bool | None = None,
        need: Need | None = None,
        **options: Any,
    ) -> RestRoute:
        """Return a route.

        does: a method of the target, a change of a stream, or a function that answers. name: of the answer that is made
        of the former. errors: beside 404 and 409. options: of `calling` or `changing`.
        """
        path, has_body = self.path + below, method not in ("GET", "DELETE")
        if isinstance(does, type):
            does = changing(does, name, **options)
        elif name:
            in_path = re.findall(r"{(\w+)}", path)
            does = calling(does, name, self.target, in_path, has_body=has_body, submits=submits, **options)
        tag = self.tag or _TAGS.get(path.split("/")[3], "operation")
        made = route(
            method, path, does, tag=tag, status=status, submits=submits, has_dry_run=has_dry_run, need=need
        )
        names_any = any(each.place == "path" or each.name == "scope" for each in made.parameters)
        errors = (*((404,) if names_any else ()), *((409,) if has_body else ()), *errors)
        return attrs.evolve(made, errors=errors, status=204 if made.result is None else status)


_whole = _Noun("/v1/health", health.WHOLE, "health")
_part = _Noun("/v1/health", health.PART, "health")
_stream = _Noun(f"{OWN}/streams/{{scope}}/{{stream}}", STREAM)
_delayed = _Noun(f"{_stream.path}/delayed/{{event}}", operator.DELAYED)
_transaction = _Noun(f"{_stream.path}/transactions/{{transaction}}")
_group = _Noun(f"{OWN}/groups/{{scope}}/{{group}}", GROUP)
_state = _Noun(f"{_group.path}/state", STATE)
_share = _Noun(f"{OWN}/shares/{{scope}}/{{group}}", SHARE)
_topic = _Noun(f"{OWN}/topics/{{scope}}/{{stream}}", TOPIC)
_processor = _Noun(f"{OWN}/processors/{{scope}}/{{group}}", PROCESSOR)
_letters = _Noun(f"{_processor.path}/dead-letters")
_supervisor = _Noun(f"{OWN}/supervisors/{{supervisor}}", SUPERVISOR)
_own = _Noun(OWN)
_task = _Noun(f"{OWN}/tasks", TASKS)
_user = _Noun(f"{OWN}/users", CHANGEABLE)
_jobs = _Noun(f"{OWN}/jobs/{{scope}}/{{group}}", jobs.JOBS)
_job = _Noun(f"{_jobs.path}/{{job}}", jobs.JOB)
_schedule = _Noun(f"{OWN}/schedules/{{scope}}/{{schedule}}", schedules.SCHEDULE)

_list = partial(_Noun(OWN, LISTS), "GET", need=USER)
_seen_supervisor = partial(_Noun(_supervisor.path, SEEN_SUPERVISOR), "GET", need=USER)
_then_status = partial(_supervisor, "POST", then=Supervisor.status)
_scale = partial(_stream, "POST", submits=True, then=operator.opened)

ROUTES: Final[tuple[RestRoute, ...]] = (
    _scopes("GET", "/v1/scopes", pravega.list_scopes, need=USER),
    _scopes("POST", "/v1/scopes", pravega.create_scope, status=201, errors=(409,)),
    _scopes("GET", _SCOPE, pravega.get_scope_of, errors=(404,)),
    _scopes("DELETE", _SCOPE, pravega.delete_scope, status=204, errors=(404, 412), need=UPDATE_SERVER),
    _streams("GET", f"{_SCOPE}/streams", pravega.list_streams, errors=(404,), need=USER),
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
    _groups("GET", f"{_SCOPE}/readergroups", pravega.list_reader_groups, errors=(404,), need=USER),
    _groups("GET", _GROUP, pravega.get_reader_group, errors=(404,)),
    _groups("DELETE", _GROUP, pravega.delete_reader_group, status=204, errors=(404,)),
    _whole("GET", "", health.get_health, need=USER),
    _whole("GET", "/status", health.status_of, "get_status", need=ANYONE),
    _whole("GET", "/readiness", health.readiness_of, "get_readiness", need=ANYONE),
    _whole("GET", "/liveness", health.liveness_of, "get_liveness", need=ANYONE),
    _whole("GET", "/details", health.details_of, "get_details", need=USER),
    _part("GET", "/status/{part}", health.status_of, "get_part_status", need=ANYONE),
    _part("GET", "/readiness/{part}", health.readiness_of, "get_part_readiness", need=ANYONE),
    _part("GET", "/liveness/{part}", health.liveness_of, "get_part_liveness", need=ANYONE),
    _part("GET", "/details/{part}", health.details_of, "get_part_details", need=USER),
    _part("GET", "/{part}", health.get_part_health, need=USER),
    _probe("/healthz", health.get_healthz),
    _probe("/readyz", health.get_readyz),
    _list("/overview", ListSystem.overview, "get_overview"),
    _list("/streams", ListSystem.streams, "list_all_streams"),
    _stream("GET", "", Stream.describe, "describe_stream"),
    _stream("GET", "/segments", Stream.segments, "list_segments", at=At),
    _stream("GET", "/epochs", Stream.epochs, "list_epochs", by="number"),
    _stream("GET", "/cut", operator.get_cut),
    _stream("GET", "/sealed-segments", Stream.sealed_segments, "list_sealed_segments", by="id"),
    _stream(
        *("GET", "/segments-between", Stream.segments_between, "list_segments_between"),
        by="id",
        from_cut=Cut,
        to_cut=Cut,
    ),
    _stream("GET", "/segments/{segment}", operator.describe_segment),
    _stream("GET", "/scales", Stream.scales, "list_scales", by="epoch", from_ms=Time, to_ms=Time),
    _stream(
        "GET", "/size", Stream.measure, "measure_stream", errors=(410,), start=ReadPosition, end=ReadPosition
    ),
    _stream("GET", "/plot", operator.plot_stream),
    _stream("GET", "/events", events.list_events, errors=(410,)),
    _stream("GET", "/compare", operator.compare_stream_cuts),
    _stream("GET", "/truncation", Stream.truncation, "get_truncation"),
    _scale("/scale", ScaleStream, "scale_stream", omitted=("reason",)),
    _scale("/split", SplitSegment, "split_segment"),
    _scale("/merge", MergeNeighbours, "merge_segments"),
    _stream("POST", "/truncate", TruncateTo, "truncate_stream", submits=True, then=operator.changed_stream),
    _stream("POST", "/offload", operator.offload_stream, status=202),
    _stream(
        *("GET", "/transactions", Stream.transactions, "list_transactions"),
        by="id",
        shown=operator.shown_transaction,
    ),
    _stream("GET", "/delayed", operator.list_delayed),
    _delayed("GET", "", DelayedEvents.get, "describe_delayed"),
    _delayed("POST", "/cancel", DelayedEvents.cancel, "cancel_delayed"),
    _delayed("POST", "/move", DelayedEvents.move, "move_delayed", at=Time),
    _transaction("GET", "", operator.describe_transaction),
    _transaction("POST", "/commit", operator.commit_transaction),
    _transaction("POST", "/abort", operator.abort_transaction),
    _list("/groups", ListSystem.groups, "list_groups"),
    _own("POST", "/groups/{scope}", groups.create_group, status=201),
    _group("GET", "", Group.describe, "describe_group"),
    _group(
        *("POST", "/reset", Group.reset, "reset_group"),
        errors=(410,),
        start=groups.NewStart,
        omitted=("streams", "until"),
    ),
    _group("PUT", "/options", Group.update, "update_group", then=Group.describe),
    _group("POST", "/checkpoints", Group.checkpoint, "create_checkpoint", status=201),
    _group("GET", "/checkpoints", Group.checkpoints, "list_checkpoints"),
    _group(
        *("POST", "/readers/{reader}/offline", Group.reader_offline, "take_reader_offline"),
        omitted=("position",),
    ),
    _group("GET", "/partitions", Group.partitions, "list_group_partitions"),
    _group(
        *("POST", "/partitions/reset", Group.reset_partitions, "reset_partitions"),
        start=At,
        partitions=groups.Partitions,
    ),
    _group(
        *("POST", "/partitions/commit", Group.commit, "commit_partitions"),
        numbers=groups.Numbers,
        then=Group.partitions,
    ),
    _state("GET", "", groups.list_states),
    _state("GET", "/size", KeyStates.describe, "measure_states"),
    _state("GET", "/value", groups.describe_key_state),
    _state("DELETE", "", groups.drop_states, errors=(409,)),
    _state("DELETE", "/value", groups.drop_key_state, errors=(409,)),
    _list("/shares", ListSystem.share_groups, "list_shares"),
    _own("POST", "/shares/{scope}", groups.create_share, status=201),
    _share("GET", "", ShareGroup.describe, "describe_share"),
    _share(
        *("POST", "/reset", ShareGroup.reset, "reset_share"),
        errors=(410,),
        start=groups.NewStart,
        omitted=("streams",),
    ),
    _share(
        *("PUT", "/options", ShareGroup.update, "update_share"),
        omitted=("streams",),
        then=ShareGroup.describe,
    ),
    _share("POST", "/consumers/{consumer}/offline", ShareGroup.consumer_offline, "take_consumer_offline"),
    _Noun(_share.path, groups.DELETED_SHARE)("DELETE", "", ShareGroup.delete, "delete_share"),
    _list("/topics", ListSystem.topics, "list_topics"),
    _own("POST", "/topics/{scope}", groups.create_topic, status=201, submits=True, has_dry_run=False),
    _topic("GET", "", Topic.describe, "describe_topic", errors=(409,)),
    _topic("GET", "/positions", Topic.positions_at, "list_positions", at=Time),
    _topic(
        *("POST", "/alter", Topic.alter, "alter_topic"),
        submits=True,
        has_dry_run=False,
        then=Topic.describe,
        partitioning=groups.Partitioning | None,
    ),
    _topic(
        "POST", "/truncate", TruncatePartitions, "truncate_topic", submits=True, then=groups.changed_topic
    ),
    _topic("POST", "/compact", groups.compact_topic, status=202),
    _topic(
        *("DELETE", "", groups.delete_topic),
        errors=(409,),
        submits=True,
        has_dry_run=False,  # two requests, of which the second one depends on the first
        need=UPDATE_SCOPE,
    ),
    _list("/processors", ListSystem.processors, "list_processors"),
    _processor("GET", "", Eventproc.processor, "describe_processor"),
    _processor("POST", "/pause", Eventproc.pause_processor, "pause_processor", then=Eventproc.processor),
    _processor("POST", "/resume", Eventproc.resume_processor, "resume_processor", then=Eventproc.processor),
    _letters("GET", "", groups.list_dead_letters),
    _letters("GET", "/{letter}", groups.describe_dead_letter),
    _letters("POST", "/redrive", groups.redrive_dead_letters),
    _letters("POST", "/drop", groups.drop_dead_letters),
    _list("/supervisors", ListSystem.supervisors, "list_supervisors", by="id"),
    _own("POST", "/supervisors", operator.submit_supervisor, errors=(404,)),
    _own("POST", "/supervisors/suspendAll", Eventproc.suspend_supervisors, "suspend_all_supervisors"),
    _own("POST", "/supervisors/resumeAll", Eventproc.resume_supervisors, "resume_all_supervisors"),
    _own("POST", "/supervisors/terminateAll", Eventproc.terminate_supervisors, "terminate_all_supervisors"),
    _seen_supervisor("", Supervisor.status, "describe_supervisor"),
    _seen_supervisor("/health", operator.check_supervisor, errors=(503,)),
    _seen_supervisor("/versions", Supervisor.history, "list_supervisor_versions", by="version"),
    _seen_supervisor("/tasks", Supervisor.tasks, "list_supervisor_tasks"),
    _seen_supervisor("/lags", Supervisor.lags, "list_supervisor_lags"),
    _then_status("/suspend", Supervisor.suspend, "suspend_supervisor"),
    _then_status("/resume", Supervisor.resume, "resume_supervisor"),
    _supervisor(
        "POST", "/terminate", Supervisor.terminate, "terminate_supervisor"
    ),  # it may end before a look
    _then_status("/handoff", Supervisor.handoff, "hand_off_supervisor", groups=tuple[int, ...] | None),
    _supervisor("POST", "/reset", operator.reset_supervisor),
    _supervisor("POST", "/backfill", operator.backfill_supervisor),
    _own(
        *("GET", "/ingestion/workers", Eventproc.ingestion_workers, "list_ingestion_workers"), by="instance"
    ),
    _own(*("GET", "/ingestion/tasks/{task}/log", Eventproc.ingestion_log, "get_ingestion_log"), by="id"),
    _list("/tables", ListSystem.tables, "list_tables"),
    _Noun(f"{OWN}/tables/{{table}}", SEEN_TABLE)(
        "GET",
        "",
        Eventproc.describe_table,
        "describe_table",
        start=RowTimeText,
        end=RowTimeText,
        need=USER,
    ),
    _own(
        "POST", "/tables/{table}/drop", Eventproc.drop_table, "drop_table", start=RowTimeText, end=RowTimeText
    ),
    _own("POST", "/verify", operator.verify_directory, status=202),
    _own("POST", "/compact", operator.compact_directory, status=202),
    _own("DELETE", "/scopes/{scope}", operator.delete_scope_with_streams, status=202, need=UPDATE_SERVER),
    _task("GET", "", Tasks.list, "list_tasks", by="id"),
    _task("GET", "/{task}", Tasks.get, "describe_task"),
    _task("POST", "/{task}/cancel", Tasks.cancel, "cancel_task"),
    _Noun(f"{OWN}/schedules", schedules.SCHEDULES)("GET", "", Schedules.list, "list_schedules", need=USER),
    _schedule("POST", "", schedules.create_schedule, status=201, errors=(404,)),
    _Noun(_schedule.path, schedules.SEEN_SCHEDULE)("GET", "", Schedules.get, "describe_schedule"),
    _schedule("DELETE", "", Schedules.delete, "delete_schedule"),
    _schedule("POST", "/pause", Schedules.pause, "pause_schedule"),
    _schedule("POST", "/resume", Schedules.resume, "resume_schedule"),
    _jobs(
        "GET", "", Jobs.list, "list_jobs", by="id", payload=lambda each: each.payload, shown=jobs.shown_job
    ),
    _jobs("POST", "", jobs.submit_job, status=201),
    _job("GET", "", Job.describe, "describe_job"),
    _job("POST", "/cancel", Job.cancel, "cancel_job", then=Job.describe),
    _job("POST", "/retry", Job.retry, "retry_job", then=Job.describe),
    _own("GET", "/requests", operator.list_requests, need=USER),
    _own("GET", "/requests/{request}", operator.describe_request, need=USER),
    _Noun(f"{OWN}/cluster", CLUSTER)("GET", "", Cluster.describe, "describe_cluster"),
    _own("GET", "/changes", operator.watch_changes, need=USER),
    _own("GET", "/caller", operator.describe_caller, need=USER),
    _Noun(f"{OWN}/users", USERS)("GET", "", Users.list, "list_users"),
    _Noun(f"{OWN}/users", USERS)("GET", "/{user}", Users.get, "describe_user"),
    _user("POST", "", Users.add, "add_user", status=201),
    _user("DELETE", "/{user}", Users.delete, "delete_user"),
    _user("PUT", "/{user}/password", Users.set_password, "set_password"),
    _user("POST", "/{user}/grants", Users.grant, "grant_permission"),
    _user("DELETE", "/{user}/grants", Users.revoke, "revoke_permission"),
    _user("POST", "/{user}/tokens", Users.add_token, "add_token", status=201),
    _user("DELETE", "/{user}/tokens/{token}", Users.delete_token, "delete_token"),
)
"""Every route, and nothing else, is in the document. Of two that fit a path, the first one answers."""
