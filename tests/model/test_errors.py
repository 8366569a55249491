"""Each error says in one way what its catcher should do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventproc.store.model import errors, group_errors, ingestion_errors
from eventproc.store.model.errors import Corrupt, EventprocError, Fenced, Pending, Rejected, Retryable

ADVICE = (Retryable, Pending, Rejected, Fenced, Corrupt)


def concrete() -> Iterator[type[EventprocError]]:
    for kind in (*vars(errors).values(), *vars(group_errors).values(), *vars(ingestion_errors).values()):
        if isinstance(kind, type) and issubclass(kind, EventprocError) and vars(kind).get("__annotations__"):
            yield kind


def test_there_are_errors_to_look_at() -> None:
    assert len(list(concrete())) > 20


@pytest.mark.parametrize("kind", list(concrete()))
def test_an_error_gives_exactly_one_advice(kind: type[EventprocError]) -> None:
    assert sum(issubclass(kind, advice) for advice in ADVICE) == 1


def test_what_exists_already_names_what_differs_and_what_to_do() -> None:
    same = errors.AlreadyExists(kind="group", name="s/g")
    assert str(same) == "group 's/g' exists already; take another name"
    differs = errors.AlreadyExists(kind="group", name="s/g", differing=("streams", "kind"))
    assert str(differs) == (
        "group 's/g' exists already and differs in streams, kind; use it as it is, or take another name"
    )
