"""A caller of REST that verifies each response against the OpenAPI document."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import attrs
import httpx
import jsonschema_rs
import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.server.access.authority import Authority
from eventproc.server.rest.application import RestAnswers, rest_application
from eventproc.server.rest.openapi import document
from eventproc.server.rest.route_table import ROUTES
from eventproc.testing.crash import PATIENCE_S

OWN = "/eventproc/v1"
"""Where REST of an operator begins, for what has no path of Pravega's."""


@attrs.frozen
class RestAnswer:
    """A response: its status, headers, and parsed body."""

    status: int
    headers: Mapping[str, str]
    body: Any


class DocumentedResponses:
    """Verifies responses against an OpenAPI document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self._operations = [
            (re.compile(re.sub(r"{\w+}", "[^/]+", path)), methods)
            for path, methods in self.document["paths"].items()
        ]

    def verify(self, method: str, path: str, answer: RestAnswer) -> None:
        """Fail if the document does not describe this response of this operation."""
        operation = self._operation(method, path)
        kind = "application/problem+json" if answer.status >= 400 else "application/json"
        if operation is None:
            schema: dict[str, Any] = {"$ref": "#/components/schemas/Problem"}
        else:
            responses = operation["responses"]
            described = responses.get(str(answer.status), responses["default"])
            if "content" not in described:
                assert answer.body is None
                return
            schema = described["content"][kind]["schema"]
        assert answer.headers["content-type"] == kind
        jsonschema_rs.validator_for({**schema, "components": self.document["components"]}).validate(
            answer.body
        )

    def _operation(self, method: str, path: str) -> dict[str, Any] | None:
        for pattern, methods in self._operations:
            if pattern.fullmatch(path) and method.lower() in methods:
                found: dict[str, Any] = methods[method.lower()]
                return found
        return None


class RestClient(DocumentedResponses):
    """Calls a serving process. base: its address."""

    def __init__(self, base: str) -> None:
        self.base = base
        self._http = httpx.Client(base_url=base, timeout=PATIENCE_S, trust_env=False)
        super().__init__(self._http.get("/openapi.json").json())

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, path: str, body: object = None, **headers: str) -> RestAnswer:
        """Return the response; fails if the document does not describe it."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        text = None
        if body is not None:
            sent.setdefault("content-type", "application/json")
            text = json.dumps(body)
        made = self._http.build_request(method, path, content=text, headers=sent)
        response = self._http.send(made)
        found = response.json() if response.text else None
        answer = RestAnswer(response.status_code, dict(response.headers), found)
        self.verify(method, made.url.path, answer)
        return answer

    def get(self, path: str, **headers: str) -> Any:
        """Return the body of a GET that succeeds."""
        answer = self.call("GET", path, **headers)
        assert answer.status == 200, answer
        return answer.body


class RestInMemory(DocumentedResponses):
    """Calls an application of this process. authority, token: None: a caller without users."""

    def __init__(self, ep: Eventproc, authority: Authority | None = None, token: str | None = None) -> None:
        super().__init__(document(ROUTES))
        answers = RestAnswers(ep, authority or Authority(ep.db), "127.0.0.1")
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.AsyncClient(
            transport=httpx.ASGITransport(rest_application(answers)),
            base_url="http://127.0.0.1",
            headers=headers,
        )

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        idempotency_key: str | None = None,
        prefer: str = "",
    ) -> RestAnswer:
        """Return the response; fails if the document does not describe it."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        headers |= {"Prefer": prefer} if prefer else {}
        response = await self._http.request(method, path, json=body, headers=headers)
        found = response.json() if response.text else None
        answer = RestAnswer(response.status_code, dict(response.headers), found)
        self.verify(method, response.request.url.path, answer)
        return answer

    async def text(self, path: str, accept: str) -> tuple[str, str]:
        """Return the media type and the text that a caller gets that accepts another type than JSON."""
        response = await self._http.get(path, headers={"Accept": accept})
        assert response.status_code == 200, response
        return response.headers["content-type"], response.text

    async def ok(self, method: str, path: str, body: object = None) -> Any:
        """Return the body of a call that succeeds."""
        answer = await self.call(method, path, body)
        assert answer.status < 300, answer
        return answer.body


@pytest.fixture
async def ep() -> AsyncIterator[Eventproc]:
    """Give a store with three events in the stream s/t."""
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer:
            for number in range(3):
                await writer.write(b"%d" % number, key="k")
        yield ep


@pytest.fixture
async def rest(ep: Eventproc) -> RestInMemory:
    """Give REST of this store."""
    return RestInMemory(ep)
