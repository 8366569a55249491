"""Every planted bug names an existing test, and its patch still applies."""

from __future__ import annotations

import pytest

from tools.mutants import Mutation, misfit, mutations


@pytest.mark.subprocess
@pytest.mark.parametrize("mutation", mutations(), ids=lambda each: each.name)
def test_a_planted_bug_applies_and_names_its_test(mutation: Mutation) -> None:
    assert misfit(mutation) is None
