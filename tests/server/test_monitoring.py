"""The dashboard of Grafana and the alerts of Prometheus name what a server exports; see docs/examples/monitoring."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import anyio
import attrs
import httpx
import jsonschema_rs
import promql_parser as promql
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import eventproc
from eventproc.cli.main import root
from eventproc.server.endpoints import serve_endpoints
from eventproc.testing.crash import PATIENCE_S
from eventproc.windows import Tumbling, Window
from tests.ingestion.support import add_worker
from tests.server.test_listening import EVERYTHING
from tests.server.test_supervisor_calls import spec_of
from tests.tidy.source import ROOT

EXAMPLES = ROOT / "docs" / "examples" / "monitoring"
DASHBOARD: Mapping[str, Any] = json.loads((EXAMPLES / "dashboard.json").read_text(encoding="utf-8"))
ALERTS: Mapping[str, Any] = yaml.safe_load((EXAMPLES / "alerts.yaml").read_text(encoding="utf-8"))

METRICS = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")

PANELS = [each for each in DASHBOARD["panels"] if each["type"] != "row"]
QUERIES = [query for panel in PANELS for query in panel["targets"]]
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]

TARGET = frozenset({"job", "instance"})
"""Labels that Prometheus adds to each series, and the only ones of its own series `up`."""

VARIABLES = {"$__rate_interval": "5m", "$job": "store"}
"""What Grafana puts in place of its variables."""

COLUMNS = 24
"""Of a dashboard."""

_TEXT = {"type": "string", "minLength": 1}
_DURATION = {"type": "string", "pattern": "^[0-9]+(s|m|h|d)$"}
RULE_FILE = {
    "type": "object",
    "required": ["groups"],
    "additionalProperties": False,
    "properties": {
        "groups": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "rules"],
                "additionalProperties": False,
                "properties": {
                    "name": _TEXT,
                    "rules": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["alert", "expr", "labels", "annotations"],
                            "additionalProperties": False,
                            "properties": {
                                "alert": {"type": "string", "pattern": "^Eventproc[A-Za-z]+$"},
                                "expr": _TEXT,
                                "for": _DURATION,
                                "labels": {
                                    "type": "object",
                                    "required": ["severity"],
                                    "additionalProperties": False,
                                    "properties": {"severity": {"enum": ["critical", "warning"]}},
                                },
                                "annotations": {
                                    "type": "object",
                                    "required": ["summary", "description"],
                                    "additionalProperties": _TEXT,
                                },
                            },
                        },
                    },
                },
            },
        }
    },
}
"""What Prometheus reads as a file of rules, as far as the alerts need it."""


@attrs.frozen
class Exported:
    """The series that a server exports: by name, the labels of each."""

    series: Mapping[str, list[Mapping[str, str]]]

    def labels_of(self, expression: Any) -> frozenset[str]:
        """Return the labels of the result of an expression. Fails for a name or a label that is not exported."""
        match expression:
            case promql.VectorSelector():
                return self._selected(expression)
            case promql.MatrixSelector():
                return self._selected(expression.vector_selector)
            case promql.AggregateExpr():
                found = self.labels_of(expression.expr)
                if expression.modifier is None:
                    return found if expression.param is not None else frozenset()  # topk keeps labels
                assert set(expression.modifier.labels) <= found, str(expression)
                return frozenset(expression.modifier.labels)
            case promql.BinaryExpr():
                left, right = self.labels_of(expression.lhs), self.labels_of(expression.rhs)
                if expression.modifier is not None and expression.modifier.matching is not None:
                    assert set(expression.modifier.matching.labels) <= left & right, str(expression)
                return left or right
            case promql.Call():
                return frozenset().union(*map(self.labels_of, expression.args))
            case promql.ParenExpr() | promql.UnaryExpr():
                return self.labels_of(expression.expr)
            case _:
                assert isinstance(expression, promql.NumberLiteral), expression
                return frozenset()

    def _selected(self, selector: promql.VectorSelector) -> frozenset[str]:
        assert selector.name is not None
        assert selector.name in self.series, f"{selector.name} is not exported"
        fitting = self.series[selector.name]
        for each in selector.matchers.matchers:
            assert each.op == promql.MatchOp.Equal, str(selector)
            if each.name not in TARGET:
                fitting = [labels for labels in fitting if labels.get(each.name) == each.value]
        assert fitting != [], f"{selector} selects nothing"
        return TARGET.union(*fitting)


async def scrape(http: httpx.AsyncClient, port: int) -> httpx.Response:
    return await http.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S)


@pytest.fixture(scope="module")
async def exported() -> Exported:
    """Scrape a server of a store that has a stream, groups, windows, a supervisor and a worker.

    Of a histogram without a value, such as that of object storage, the documentation says the labels.
    """
    app = eventproc.App()

    @app.window("s/t", Tumbling(10), value=int)
    async def count(event: eventproc.Event, window: Window[int]) -> int:
        return window.value + 1

    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        await ep.create_group("s/g", ["s/t"])
        await ep.submit_supervisor(spec_of("clicks"))
        await add_worker(ep, ep.db.instance_id)
        async with serve_endpoints(ep, EVERYTHING) as bound, httpx.AsyncClient(trust_env=False) as http:
            assert bound.rest is not None
            async with stream.writer() as writer:
                await writer.write(b"x", key="k")
            async with ep.run(app) as running:
                await running.wait_idle()
            scraped = await scrape(http, bound.rest[1])
            with anyio.fail_after(PATIENCE_S):
                while (
                    "eventproc_group_state_keys{" not in scraped.text
                ):  # its count took longer than a look waits
                    scraped = await scrape(http, bound.rest[1])
    series: dict[str, list[Mapping[str, str]]] = {"up": [{}]}
    for family in text_string_to_metric_families(scraped.text):
        for sample in family.samples:
            series.setdefault(sample.name, []).append(sample.labels)
        if family.type == "histogram" and not family.samples:
            (row,) = re.findall(rf"`{family.name}` \| histogram \| `s` \| (.*?) \|", METRICS)
            labels = dict.fromkeys(re.findall(r"`(\w+)` `", row), "")
            series[f"{family.name}_bucket"] = [{**labels, "le": "+Inf"}]
    return Exported(series)


def parsed(expression: str) -> promql.Expr:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, f"an unknown variable: {expression}"
    return promql.parse(expression)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query["expr"])
async def test_query_of_the_dashboard_finds_what_a_server_exports(
    exported: Exported, query: Mapping[str, str]
) -> None:
    found = exported.labels_of(parsed(query["expr"]))
    assert set(re.findall(r"{{(.*?)}}", query["legendFormat"])) <= found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
async def test_alert_finds_what_a_server_exports_and_names_it(
    exported: Exported, rule: Mapping[str, Any]
) -> None:
    found = exported.labels_of(parsed(rule["expr"]))
    said = " ".join(rule["annotations"].values())
    templates = re.findall(r"{{ (.*?) }}", said)
    assert said.count("{{") == len(templates)
    assert set(templates) <= {
        "$value",
        "$value | humanizeDuration",
        *(f"$labels.{each}" for each in found),
    }


async def test_a_name_or_label_that_is_not_exported_is_found(exported: Exported) -> None:
    for wrong in (
        "eventproc_none",
        'eventproc_group_lag_events{group="s/none"}',
        "max by (stream) (eventproc_group_lag_events)",
        "eventproc_streams and on (stream) eventproc_stream_segments",
    ):
        with pytest.raises(AssertionError):
            exported.labels_of(parsed(wrong))


def test_the_alerts_are_a_file_of_rules_whose_names_are_unique() -> None:
    jsonschema_rs.validator_for(RULE_FILE).validate(ALERTS)
    names = [each["alert"] for each in RULES]
    assert len(set(names)) == len(names)


def test_the_commands_that_alerts_name_exist() -> None:
    named = re.findall(r"`eventproc ([\w-]+) ([\w-]+)`", (EXAMPLES / "alerts.yaml").read_text("utf-8"))
    assert named != []
    assert [words for words in named if words[1] not in root.get_command(None, words[0]).commands] == []  # type: ignore[arg-type, union-attr]


def test_the_dashboard_takes_one_source_of_data_and_its_panels_do_not_overlap() -> None:
    variables = {each["name"]: each["type"] for each in DASHBOARD["templating"]["list"]}
    assert variables == {"datasource": "datasource", "job": "query"}
    assert {json.dumps(each["datasource"]) for each in PANELS} == {
        json.dumps({"type": "prometheus", "uid": "${datasource}"})
    }
    ids = [each["id"] for each in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    places = [
        (place["x"] + x, place["y"] + y)
        for place in (each["gridPos"] for each in DASHBOARD["panels"])
        for x in range(place["w"])
        for y in range(place["h"])
    ]
    assert len(set(places)) == len(places)
    assert max(x for x, _ in places) < COLUMNS
