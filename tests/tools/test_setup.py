"""Set-up on a bare machine: whose index is asked, which wheel of uv is taken, and that it must be the locked one."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.tidy.source import ROOT
from tools.setup import __main__ as setup
from tools.setup.indexes import DEFAULT_INDEX, Indexes
from tools.setup.uv import LockedUv, find_uv

VERSION = "9.9.9"


def test_without_any_configuration_the_index_is_the_public_one() -> None:
    assert Indexes.configured({"PIP_CONFIG_FILE": "/dev/null"}) == Indexes(DEFAULT_INDEX)


def test_uv_s_own_variables_go_before_pip_s_and_those_before_pip_s_files(tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://file/simple\nextra-index-url =\n  https://a/simple\n  https://b/simple\n"
    )
    environ = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(config)}
    from_file = Indexes.configured(environ)
    assert (from_file.default, from_file.extra) == (
        "https://file/simple",
        ("https://a/simple", "https://b/simple"),
    )
    environ["PIP_INDEX_URL"] = "https://pip/simple"
    assert Indexes.configured(environ).default == "https://pip/simple"
    environ |= {"UV_DEFAULT_INDEX": "mirror=https://uv/simple", "UV_INDEX": "/srv/simple"}
    from_uv = Indexes.configured(environ)
    assert (from_uv.default, from_uv.extra) == ("https://uv/simple", ("file:///srv/simple",))


def test_uv_is_told_the_same_indexes() -> None:
    assert Indexes("https://i/simple", ("https://x/simple",), "/ca.pem").environment_for_uv() == {
        "UV_DEFAULT_INDEX": "https://i/simple",
        "UV_INDEX": "https://x/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "SSL_CERT_FILE": "/ca.pem",
    }


@pytest.mark.parametrize(
    "page",
    [
        '<html><a href="../files/uv%2B1.whl#sha256=00">uv+1.whl</a></html>',
        json.dumps({"files": [{"url": "../files/uv%2B1.whl"}]}),
    ],
    ids=["html", "json"],
)
def test_a_file_is_found_on_the_first_index_that_has_it(tmp_path: Path, page: str) -> None:
    _publish(tmp_path / "has" / "uv", page)
    indexes = Indexes((tmp_path / "missing").as_uri(), ((tmp_path / "has").as_uri(),))
    found = indexes.find_file("uv", "uv+1.whl")
    assert found.startswith((tmp_path / "has" / "files" / "uv%2B1.whl").as_uri().replace("%25", "%"))


def test_a_file_that_no_index_has_is_an_error_naming_them(tmp_path: Path) -> None:
    _publish(tmp_path / "uv", "<html></html>")
    with pytest.raises(OSError, match=r"uv\.whl cannot be had: .*does not have it"):
        Indexes(tmp_path.as_uri()).find_file("uv", "uv.whl")


@pytest.mark.parametrize(
    ("system", "machine", "libc", "tag"),
    [
        ("linux", "x86_64", ("glibc", "2.36"), "manylinux_2_17_x86_64.manylinux2014_x86_64"),
        ("linux", "x86_64", ("", ""), "musllinux_1_1_x86_64"),
        (
            "linux",
            "aarch64",
            ("glibc", "2.17"),
            "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
        ),
    ],
)
def test_the_wheel_is_the_one_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, libc: tuple[str, str], tag: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "libc_ver", lambda: libc)
    locked = LockedUv.read(ROOT / "uv.lock")
    assert locked.wheel_for_this_machine() == f"uv-{locked.version}-py3-none-{tag}.whl"


def test_a_machine_that_uv_is_not_made_for_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    with pytest.raises(SystemExit, match="install uv yourself"):
        LockedUv.read(ROOT / "uv.lock").wheel_for_this_machine()


def test_without_pip_uv_is_fetched_from_the_index_once(tmp_path: Path, bare_machine: Path) -> None:
    wheel = _publish_uv(tmp_path / "index")
    _lock(tmp_path, wheel, hashlib.sha256(wheel.read_bytes()).hexdigest())
    found = find_uv(tmp_path, Indexes((tmp_path / "index").as_uri()))
    assert found.read_text() == "#!/bin/sh\n"
    assert found.stat().st_mode & 0o111
    wheel.unlink()
    assert find_uv(tmp_path, Indexes((tmp_path / "index").as_uri())) == found


def test_a_wheel_with_another_hash_is_not_unpacked(tmp_path: Path, bare_machine: Path) -> None:
    _lock(tmp_path, _publish_uv(tmp_path / "index"), "0" * 64)
    with pytest.raises(SystemExit, match=r"uv\.lock says 0000"):
        find_uv(tmp_path, Indexes((tmp_path / "index").as_uri()))
    assert not (tmp_path / ".tools").exists()


def test_an_index_out_of_reach_is_one_line_that_names_it(tmp_path: Path, bare_machine: Path) -> None:
    _lock(tmp_path, _publish_uv(tmp_path / "index"), "0" * 64)
    with pytest.raises(SystemExit, match=r"file:///none/simple: .* Name an index in PIP_INDEX_URL"):
        find_uv(tmp_path, Indexes("file:///none/simple"))


@pytest.mark.parametrize(
    "stamp, recreated",
    [
        ("{major}.{minor} {root}\nold\n", False),
        ("{major}.{minor} /elsewhere\nold\n", True),
        ("3.0 {root}\nold\n", True),
        (None, True),
    ],
    ids=["other files", "a checkout that was moved", "another Python", "interrupted"],
)
def test_an_environment_is_made_anew_where_its_scripts_would_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stamp: str | None, recreated: bool
) -> None:
    venv = tmp_path / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").touch()
    (tmp_path / ".tools").mkdir()
    for name in ("uv.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    if stamp is not None:
        values = {"major": sys.version_info.major, "minor": sys.version_info.minor, "root": tmp_path}
        (venv / "set-up").write_text(stamp.format(**values))
    ran: list[str] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert not (venv / "set-up").exists(), "what is interrupted now would pass for finished"
        ran.append(command[1])
        return subprocess.CompletedProcess(command, 0, stdout="")

    for name, value in {
        "ROOT": "",
        "VENV": ".venv",
        "PYTHON": ".venv/bin/python",
        "STAMP": ".venv/set-up",
    }.items():
        monkeypatch.setattr(setup, name, tmp_path / value)
    monkeypatch.setattr(setup, "find_uv", lambda *_: "uv")
    monkeypatch.setattr(subprocess, "run", run)
    setup.main()
    assert ("venv" in ran) is recreated
    ran.clear()
    setup.main()
    assert ran == []


def test_the_environment_of_another_checkout_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, here = tmp_path / "other" / ".venv", tmp_path / "here"
    (other / "bin").mkdir(parents=True)
    (other / "bin" / "python").touch()
    (other / "set-up").write_text(f"{sys.version_info.major}.{sys.version_info.minor} {other.parent}\n")
    here.mkdir()
    for name in ("uv.lock", "pyproject.toml"):
        (here / name).touch()
    (here / ".venv").symlink_to(other)

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        (here / ".venv").mkdir(exist_ok=True)
        return subprocess.CompletedProcess(command, 0, stdout="")

    venv = here / ".venv"
    for name, place in {
        "ROOT": here,
        "VENV": venv,
        "PYTHON": venv / "bin" / "python",
        "STAMP": venv / "set-up",
    }.items():
        monkeypatch.setattr(setup, name, place)
    monkeypatch.setattr(setup, "find_uv", lambda *_: "uv")
    monkeypatch.setattr(subprocess, "run", run)
    setup.main()
    assert (other / "bin" / "python").exists()
    assert (other / "set-up").exists()
    assert not venv.is_symlink()


def test_the_lock_file_names_the_public_index_only() -> None:
    hosts = set(re.findall(r'"(?:https?|file)://([^/"]*)', (ROOT / "uv.lock").read_text()))
    assert hosts == {"pypi.org", "files.pythonhosted.org"}


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Take uv and pip away; return the empty folder that PATH names."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    return tmp_path


def _publish(folder: Path, page: str) -> None:
    folder.mkdir(parents=True)
    (folder / "index.html").write_text(page)


def _publish_uv(index: Path) -> Path:
    """Put a wheel that calls itself uv, for this machine, on an index made of files."""
    real = LockedUv.read(ROOT / "uv.lock")
    wheel = index / real.wheel_for_this_machine().replace(real.version, VERSION)
    _publish(index / "uv", f'<a href="../{wheel.name}">{wheel.name}</a>')
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"uv-{VERSION}.data/scripts/uv", "#!/bin/sh\n")
    return wheel


def _lock(root: Path, wheel: Path, digest: str) -> None:
    wheels = f'wheels = [{{ url = "https://files.invalid/{wheel.name}", hash = "sha256:{digest}" }}]'
    (root / "uv.lock").write_text(f'[[package]]\nname = "uv"\nversion = "{VERSION}"\n{wheels}\n')
