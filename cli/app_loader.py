"""Import the app that MODULE:NAME names, from the current directory or an installed package."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

import click

from eventproc.cli.exit_codes import NOT_FOUND, USAGE
from eventproc.processors import App


class AppUnusable(click.ClickException):
    """The named object is not an app that can be run."""

    exit_code = USAGE


class AppMissing(click.ClickException):
    """The module, or the name in it, was not found."""

    exit_code = NOT_FOUND


def load_app(name: str) -> App:
    """Import and return the app that `name` names. Runs the module's code.

    Raises AppMissing if the module or name was not found, AppUnusable if it is not an app that does something, and
    click.ClickException if the module's code raised.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise AppUnusable(f"{name!r} does not name an app; use MODULE:NAME, such as shop:app")
    if module_name.startswith(".") or module_name.endswith(".py") or os.sep in module_name:
        remedy = f"{Path(module_name).name.lstrip('.').removesuffix('.py')}:{attribute}"
        raise AppUnusable(
            f"{name!r} is a path; an app is named by its module, which is imported from the current directory: "
            f"change to the module's directory and use {remedy}"
        )
    found: object = _import(module_name)
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise AppMissing(f"app {name} not found: module {module_name} has no {attribute!r}") from None
    if not isinstance(found, App):
        raise AppUnusable(f"{name} is of type {type(found).__name__}; it must be an eventproc.App")
    if not (found.processors or found.setups or found.schedules):
        raise AppUnusable(f"{name} is empty; declare something with @{attribute}.processor(...) or .setup")
    return found


def _import(name: str) -> ModuleType:
    folder = os.getcwd()  # noqa: PTH109
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as why:
        if why.name is not None and (name == why.name or name.startswith(f"{why.name}.")):
            raise AppMissing(
                f"module {name!r} not found in {folder}, nor among the installed packages"
            ) from None
        raise _broken(name, why) from why
    except (Exception, SystemExit) as why:
        raise _broken(name, why) from why


def _broken(name: str, why: BaseException) -> click.ClickException:
    where = "" if isinstance(why, SyntaxError) else _raised_at(why)  # the text of a SyntaxError has its place
    return click.ClickException(f"importing {name} failed: {type(why).__name__}: {why}{where}")


def _raised_at(why: BaseException) -> str:
    """Return the place in the user's code where the import failed, as the text of a SyntaxError has it."""
    frames = [frame for frame in extract_tb(why.__traceback__) if _is_below(frame.filename, os.getcwd())]  # noqa: PTH109
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _is_below(file: str, folder: str) -> bool:
    return Path(file).is_relative_to(folder) and "site-packages" not in file
