"""The OpenAPI document: it has every route, and calls made from it get the responses that it describes."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import positive_data_acceptance

import eventproc
from eventproc import errors
from eventproc.server.rest.openapi import document
from eventproc.server.rest.problems import SCHEMA, STATUS_OF, problem_of, status_of
from eventproc.server.rest.route_table import ROUTES
from eventproc.store.records.plain import camel
from tests.server.access_support import UPDATE, add_user
from tests.server.rest_client import RestClient
from tests.server.support import ServerProcess
from tests.server.test_rest import (
    directory as directory,  # a fixture
    rest as rest,  # a fixture
)

CALLS = 2
"""Calls of each operation with valid, and with invalid, values. Making them takes most of the time."""


def test_every_route_is_in_the_document_and_nothing_else() -> None:
    paths = document(ROUTES)["paths"]
    described = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert described == {(each.method, each.path) for each in ROUTES}
    names = [each.name for each in ROUTES]
    assert len(set(names)) == len(names)
    for each in ROUTES:
        operation = paths[each.path][each.method.lower()]
        assert operation["operationId"] == camel(each.name)
        assert operation["summary"].endswith(".")
        assert str(each.status) in operation["responses"]


def test_every_operation_says_which_credentials_and_which_permission_it_needs() -> None:
    found = document(ROUTES)
    assert found["components"]["securitySchemes"].keys() == {"basic", "bearer"}
    for each in ROUTES:
        operation = found["paths"][each.path][each.method.lower()]
        if each.need.is_for_anyone:
            assert operation["security"] == []
            assert "x-permission" not in operation
        else:  # the last one: a directory without users asks for none
            assert operation["security"] == [{"basic": []}, {"bearer": []}, {}]
            assert {"401", "403"} <= operation["responses"].keys()
            assert operation["x-permission"] == each.need.described


def test_every_error_has_a_status_and_no_row_is_hidden_by_an_earlier_one() -> None:
    concrete = [each for each in vars(errors).values() if isinstance(each, type) and attrs.has(each)]
    assert concrete
    assert [each for each in concrete if not issubclass(each, tuple(kind for kind, _ in STATUS_OF))] == []
    for number, (kind, status) in enumerate(STATUS_OF):
        assert status_of(kind) is status
        assert not any(issubclass(kind, before) for before, _ in STATUS_OF[:number])


def test_a_problem_has_the_fields_of_its_error_and_hides_what_is_a_bug() -> None:
    found = problem_of(errors.NotFound(kind="stream", name="s/t"))
    assert (found.status, found.body["fields"]) == (404, {"kind": "stream", "name": "s/t"})
    assert set(found.body) <= set(SCHEMA["properties"])
    other = problem_of(errors.NotAReaderGroup(group="s/g", streams=()))
    assert (other.status, other.body["title"]) == (409, "Not a reader group")
    held = problem_of(errors.LockHeld(path="/d", pid=None, for_ms=5))
    assert (held.status, set(held.headers)) == (HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After"})
    bug = problem_of(ValueError("secret"))
    assert bug.status == HTTPStatus.INTERNAL_SERVER_ERROR
    assert "secret" not in str(bug.body)


@pytest.mark.subprocess
@pytest.mark.parametrize("valid", [True, False])
def test_calls_made_from_the_document_get_what_it_describes(rest: RestClient, valid: bool) -> None:
    make_calls(rest, valid=valid, calls=CALLS)


@pytest.mark.subprocess
def test_calls_of_a_user_get_what_the_document_describes_and_without_a_token_401(tmp_path: Path) -> None:
    """A call with credentials is repeated without them, and with wrong ones: that is a check of schemathesis."""
    directory = tmp_path / "served"
    token = anyio.run(make_directory, directory)
    directory.chmod(0o700)
    with ServerProcess(directory, rest=True) as server:
        client = RestClient(server.rest)
        make_calls(client, valid=True, calls=1, headers={"Authorization": f"Bearer {token}"})
        client.close()


async def make_directory(directory: Path) -> str:
    """Make a directory with an administrator; return its token."""
    async with eventproc.open(directory, durability="os") as ep:
        return await ep.db.write(lambda tx: add_user(tx, "admin", (UPDATE, "*")))


def make_calls(
    rest: RestClient, *, valid: bool, calls: int, headers: Mapping[str, str] | None = None
) -> None:
    """Make calls of each operation, and verify each response against the document."""
    mode = schemathesis.GenerationMode.POSITIVE if valid else schemathesis.GenerationMode.NEGATIVE
    chosen = settings(
        max_examples=calls,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.filter_too_much,
            HealthCheck.function_scoped_fixture,
        ],
    )
    found: Any
    for found in schemathesis.openapi.from_dict(rest.document).get_all_operations():
        operation = found.ok()
        described = rest.document["paths"][operation.path][operation.method]
        if not valid and "requestBody" not in described:
            continue
        if described["operationId"] == "watchChanges":
            continue  # the response has no end; test_changes.py reads it

        @chosen
        @given(case=operation.as_strategy(generation_mode=mode))
        def call(case: Any) -> None:
            response = case.call(base_url=rest.base, headers=headers)
            assert response.status_code < 500, response.text
            # A valid text need not be a valid name.
            case.validate_response(response, excluded_checks=[positive_data_acceptance], headers=headers)

        call()
