"""`eventproc export` at the shell."""

from __future__ import annotations

import json

from tests.cli.conftest import Cli


def test_export_prints_one_document_a_line_and_names_every_object(billing: Cli) -> None:
    found = billing("export")
    assert (found.code, found.err) == (0, "")
    rows = [json.loads(line) for line in found.out.splitlines()]
    assert [row["object"] for row in rows] == [
        "export",
        "scope",
        "stream",
        "epoch",
        "group",
        "request",
        "end",
    ]
    stream = rows[2]
    shown = billing("stream", "describe", "shop/orders", "-o", "json").json()
    assert (stream["name"], stream["version"], stream["state"]) == (
        "shop/orders",
        shown["version"],
        shown["state"],
    )
    assert rows[-1]["lines"] == len(rows)
