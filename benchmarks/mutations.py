"""How strong the tests are: the core is mutated in one place at a time; tests that still pass have missed a mutation.

    python benchmarks/mutations.py [--count 60] [--seed 0] [--only TEXT] [--limit 120]

Each mutation (a comparison, an operator, a constant, a negated condition) is made in a copy of the project, and the
tests of that part run until the first fails. A mutation is killed if a test fails. It is also killed if the tests run
out of time, provided that they pass in time without it: on a busy machine they may not, which is reported as UNKNOWN.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = {
    "engine/papers/sources/gradient.py": "tests/papers/sources",
    "engine/papers/sources/estimators.py": "tests/papers/sources",
    "engine/trials/uses.py": "tests/trials",
    "engine/trials/policy.py": "tests/trials",
    "engine/papers/ranker/rollout.py": "tests/papers/ranker",
    "engine/checks/ledger.py": "tests/checks",
    "engine/papers/topics/report.py": "tests/papers/topics",
    "engine/papers/topics/train.py": "tests/papers/topics",
    "engine/papers/topics/selection.py": "tests/papers/topics",
    "engine/papers/calibrate/scores.py": "tests/papers/calibrate",
    "engine/papers/calibrate/rounds.py": "tests/papers/calibrate",
    "engine/papers/calibrate/reports.py": "tests/papers/calibrate",
    "engine/evaluate/statistics.py": "tests/evaluate",
    "engine/retrieval/bm25.py": "tests/retrieval",
    "engine/select/methods.py": "tests/select",
    "engine/retrieval/duplicates.py": "tests/retrieval",
    "engine/pool/answers.py": "tests/pool",
    "engine/pool/prompts.py": "tests/pool",
    "engine/llm/budget.py": "tests/llm",
    "engine/llm/pace.py": "tests/llm",
    "engine/store/decisions.py": "tests/store",
    "engine/export/corpus.py": "tests/export",
}
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}


@dataclass(frozen=True)
class Mutation:
    """A change of one file; ``place`` counts the nodes that can be changed, in the order of `ast.walk`."""

    file: str
    place: int
    line: int
    about: str


def changed(node: ast.AST) -> str:
    """Change the node in place and say how; empty where nothing can be changed."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        before, node.ops[0] = node.ops[0], COMPARISONS[type(node.ops[0])]()
        return f"{type(before).__name__} to {type(node.ops[0]).__name__}"
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in OPERATORS:
        before, node.op = node.op, OPERATORS[type(node.op)]()
        return f"{type(before).__name__} to {type(node.op).__name__}"
    if isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return f"to {type(node.op).__name__}"
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        before, node.value = node.value, node.value + 1
        return f"{before} to {node.value}"
    if isinstance(node, (ast.If, ast.IfExp)):
        node.test = ast.UnaryOp(ast.Not(), node.test)
        return "condition negated"
    return ""


def places(tree: ast.AST) -> list[ast.AST]:
    """Nodes inside functions, each once, without annotations and what is computed on import.

    A list, because `changed` adds nodes to the tree and would shift the places of those that follow.
    """
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    nodes = [node for function in functions for statement in function.body for node in ast.walk(statement)]
    return list({id(node): node for node in nodes}.values())


def mutations() -> list[Mutation]:
    found = []
    for file in CORE:
        for place, node in enumerate(places(ast.parse((ROOT / file).read_text(encoding="utf-8")))):
            line = getattr(node, "lineno", 0)
            if about := changed(node):
                found.append(Mutation(file, place, line, about))
    return found


def tests_of(file: str, copy: Path) -> list[str]:
    """The test files of a module's part, those named after the module first: they fail soonest."""
    files = sorted((copy / CORE[file]).glob("test_*.py"))
    return [str(path) for path in sorted(files, key=lambda path: Path(file).stem not in path.stem)]


def passes(copy: Path, tests: list[str], limit: float) -> bool | None:
    """Whether the tests pass; None if they do not end within ``limit`` seconds."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return None
    return ran.returncode == 0


def verdict(mutation: Mutation, copy: Path, limit: float, unchanged: dict[str, bool | None]) -> str:
    """``killed``, ``SURVIVED`` or ``UNKNOWN``; ``unchanged``: whether a part's tests pass without a mutation."""
    path, part, tests = copy / mutation.file, CORE[mutation.file], tests_of(mutation.file, copy)
    if part not in unchanged:
        unchanged[part] = passes(copy, tests, limit)
    if unchanged[part] is False:
        sys.exit(f"{part} fails without a mutation: nothing can be concluded")
    before = path.read_text(encoding="utf-8")
    tree = ast.parse(before)
    changed(places(tree)[mutation.place])
    path.write_text(ast.unparse(tree), encoding="utf-8")
    try:
        passed = passes(copy, tests, limit)
    finally:
        path.write_text(before, encoding="utf-8")
    if passed is None:
        return "killed" if unchanged[part] else "UNKNOWN"
    return "SURVIVED" if passed else "killed"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--count", type=int, default=60)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--only", default="", help="Mutate only files whose path contains this text.")
    arguments.add_argument("--limit", type=float, default=120.0, help="Seconds allowed for the tests of one part.")
    given = arguments.parse_args()
    possible = [mutation for mutation in mutations() if given.only in mutation.file]
    chosen = random.Random(given.seed).sample(possible, min(given.count, len(possible)))
    unchanged: dict[str, bool | None] = {}
    verdicts = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "icl_curate"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "build", "__pycache__"))
        for mutation in sorted(chosen, key=lambda one: (one.file, one.line)):
            verdicts.append(verdict(mutation, copy, given.limit, unchanged))
            print(f"{verdicts[-1]:9} {mutation.file}:{mutation.line}: {mutation.about}", flush=True)
    print(f"\n{verdicts.count('killed')} of {len(chosen)} killed, of {len(possible)} possible mutations")


if __name__ == "__main__":
    main()
