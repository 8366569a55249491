"""The core with its extras resolves, with the lowest and the highest versions, to what each platform can install.

`make extras` also runs the tests of each extra with these versions.
"""

from __future__ import annotations

import tomllib

import pytest

from tests.packaging.test_distribution import PYTHONS
from tests.tidy.source import ROOT
from tools.extras import NOT_ON_MUSL, RESOLUTIONS, RUNS, resolve

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]

PLATFORMS = ("x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl")


@pytest.mark.parametrize(
    ("resolution", "python"), list(zip(RESOLUTIONS, (PYTHONS[0], PYTHONS[-1]), strict=True))
)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_all_extras_resolve_together_without_a_compiler(platform: str, resolution: str, python: str) -> None:
    extras = [extra for extra in EXTRAS if "musl" not in platform or extra not in NOT_ON_MUSL]
    pins = {line.partition("==")[0] for line in resolve(extras, resolution, python, platform).splitlines()}
    assert {"anyio", "cryptography", "numpy", "psycopg-binary", "pyspark"} <= pins


def test_each_extra_has_a_run_of_tests_that_exist() -> None:
    assert {extra for case in RUNS.values() for extra in case.extras} == set(EXTRAS)
    assert [test for case in RUNS.values() for test in case.tests if not (ROOT / test).exists()] == []


def test_the_readme_says_what_musl_has_no_wheels_of() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (sentence,) = [part for part in readme.split("\n\n") if "musl" in part and "aiokafka" in part]
    assert [extra for extra in NOT_ON_MUSL if f"`{extra}`" not in sentence] == []
