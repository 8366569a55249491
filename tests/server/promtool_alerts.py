"""Each alert fires for the trouble that it names, and not in health, as `promtool` of Prometheus evaluates it.

`make alerts` runs these tests, because few machines have `promtool`: Debian has it in the package `prometheus`.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest
import yaml

from tests.server.test_monitoring import EXAMPLES, RULES

pytestmark = pytest.mark.subprocess

FILE: Final = EXAMPLES / "alerts.yaml"

SUPERVISOR: Final = 'supervisor="clicks"'
GROUP: Final = 'group="shop/mailer"'

TROUBLES: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = MappingProxyType(
    {
        "ServerDown": {"up{}": ("1x9 0x50", "1x60"), "eventproc_streams{}": ("1x9 _x50", "1x60")},
        "NotReady": {"eventproc_ready{}": ("0x60", "1x60")},
        "NoHost": {"eventproc_host_present{}": ("0x60", "1x60")},
        "RequestsPending": {"eventproc_requests_pending{}": ("2x60", "0x60")},
        "LagGrows": {f"eventproc_group_lag_seconds{{{GROUP}}}": ("0+60x60", "400x60")},
        "GroupWithoutMembers": {
            f"eventproc_group_lag_events{{{GROUP}}}": ("5x60", "5x60"),
            f"eventproc_group_readers{{{GROUP}}}": ("0x60", "1x60"),
        },
        "DeadLetters": {f"eventproc_group_dead_letters{{{GROUP}}}": ("3x60", "0x60")},
        "SupervisorUnhealthy": {f"eventproc_supervisor_healthy{{{SUPERVISOR}}}": ("0x60", "1x60")},
        "SupervisorLagGrows": {f"eventproc_supervisor_lag_events{{{SUPERVISOR}}}": ("0+100x60", "100x60")},
        "TasksFail": {
            f'eventproc_supervisor_ended_tasks_total{{{SUPERVISOR},state="failed"}}': ("0+1x60", "7x60")
        },
        "TasksWait": {f'eventproc_supervisor_tasks{{{SUPERVISOR},state="waiting"}}': ("1x60", "0x60")},
        "UnparseableEvents": {
            f"eventproc_supervisor_unparseable_events_total{{{SUPERVISOR}}}": ("0+1x60", "7x60")
        },
        "WorkerDied": {"eventproc_ingestion_dead_workers{}": ("1x60", "0x60")},
        "FileDescriptors": {
            "process_open_fds{}": ("950x60", "50x60"),
            "process_max_fds{}": ("1000x60", "1000x60"),
            "eventproc_streams{}": ("1x60", "1x60"),
        },
    }
)
"""By alert, series in trouble and in health: the values of an hour, one a minute, in the notation of `promtool`."""


def run(*arguments: object) -> str:
    """Return what `promtool` says. Fails if it finds something wrong."""
    promtool = shutil.which("promtool")
    assert promtool is not None, "`promtool` is not installed"
    done = subprocess.run([promtool, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def labelled(series: str, job: str) -> str:
    """Return a series with the labels that Prometheus adds."""
    name, _, labels = series.removesuffix("}").partition("{")
    added = f'job="{job}",instance="a:9100"'
    return f"{name}{{{labels},{added}}}" if labels else f"{name}{{{added}}}"


def test_prometheus_reads_the_rules() -> None:
    assert f"{len(RULES)} rules found" in run("check", "rules", FILE)


def test_each_alert_fires_for_its_trouble_alone_and_none_in_health(tmp_path: Path) -> None:
    assert [each["alert"] for each in RULES] == [f"Eventproc{name}" for name in TROUBLES]
    series = [
        {"series": labelled(each, job), "values": values}
        for name, found in TROUBLES.items()
        for each, (wrong, well) in found.items()
        for job, values in ((f"Eventproc{name}", wrong), (f"well-{name}", well))
    ]
    firing = [
        {"labels": f'{{alertname="{each["alert"]}",job="{each["alert"]}"}}', "value": 1} for each in RULES
    ]
    expected = {
        "expr": 'count by (alertname, job) (ALERTS{alertstate="firing"})',
        "eval_time": "1h",
        "exp_samples": firing,
    }
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [expected]}
    (tmp_path / "test.yaml").write_text(
        yaml.safe_dump({"rule_files": [str(FILE)], "evaluation_interval": "1m", "tests": [test]})
    )
    assert "SUCCESS" in run("test", "rules", tmp_path / "test.yaml")
