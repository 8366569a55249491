"""Every planted bug names an existing test, and its patch still applies."""

from __future__ import annotations

import ast
import subprocess

import pytest

from tools.mutants import ROOT, Mutation, mutations


@pytest.mark.subprocess
@pytest.mark.parametrize("mutation", mutations(), ids=lambda each: each.name)
def test_a_planted_bug_applies_and_names_its_test(mutation: Mutation) -> None:
    path, _, name = mutation.test.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    assert name in {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    check = ["git", "apply", "--check", str(mutation.path)]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
