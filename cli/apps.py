"""Apps as people name them at the shell, MODULE:NAME, imported from the current folder or what is installed."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import click

from eventproc.cli.failures import NOT_FOUND, USAGE
from eventproc.processors import App


class AppUnusable(click.ClickException):
    """What was named is no app that can be run."""

    exit_code = USAGE


class AppMissing(click.ClickException):
    """There is no such module, or no such name in it."""

    exit_code = NOT_FOUND


def load_app(name: str) -> App:
    """Import and return the app that `name` names. Raises click.ClickException; runs the module's code.

    Not found: no such module or name; wrong usage: it is no app, or has no processors; failed: its code raised.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise AppUnusable(f"{name!r}: an app is named MODULE:NAME, such as shop:app")
    if module_name.startswith(".") or os.sep in module_name:
        there = f"{Path(module_name).name.lstrip('.')}:{attribute}"
        raise AppUnusable(
            f"{name!r}: a module is looked for by its name, from the current folder on, and not by a path; "
            f"go to its folder, and say {there}"
        )
    found: object = _import(module_name)
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise AppMissing(f"{name}: module {module_name} has no {attribute!r}") from None
    if not isinstance(found, App):
        raise AppUnusable(f"{name} is no eventproc.App but of type {type(found).__name__}")
    if not found.processors:
        raise AppUnusable(f"{name} has no processors; declare one with @{attribute}.processor(...)")
    return found


def _import(name: str) -> ModuleType:
    folder = os.getcwd()  # noqa: PTH109
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as why:
        if why.name is not None and (name == why.name or name.startswith(f"{why.name}.")):
            raise AppMissing(f"no module {name!r} in {folder}, nor among those installed") from None
        raise _broken(name, why) from why
    except SystemExit as why:
        raise _broken(name, why) from why
    except Exception as why:
        raise _broken(name, why) from why


def _broken(name: str, why: BaseException) -> click.ClickException:
    return click.ClickException(f"importing {name} failed: {type(why).__name__}: {why}")
