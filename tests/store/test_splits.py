"""A limit on queries that come sorted by label is said: nothing decided on three labels holds for fifteen."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from factories.asked_world import make_world
from factories.commands import Run
from icl_curate.engine.base.progress import Event, Monitor
from icl_curate.engine.store.demonstrations import _none_of, first_queries
from icl_curate.engine.store.workspace import Workspace
from scipy.stats import hypergeom

SORTED = [f"label {i // 8}" for i in range(64)]
MIXED = random.Random(0).sample(SORTED, len(SORTED))
OPEN = [f"answer {i // 2}" for i in range(64)]


@pytest.mark.parametrize(("count", "total", "drawn"), [(3, 40, 10), (1, 40, 39), (40, 40, 1), (7, 600, 100), (5, 9, 9)])
def test_the_chance_of_no_query_of_a_label(count: int, total: int, drawn: int) -> None:
    assert _none_of(count, total, drawn) == pytest.approx(hypergeom(total, count, drawn).pmf(0), abs=1e-12)


def _world(path: Path, outputs: list[str]) -> Workspace:
    rows = [{"id": f"q{i}", "input": f"question {i} of many", "output": output} for i, output in enumerate(outputs)]
    return make_world(path, [{**row, "id": f"d{row['id']}", "input": f"x {row['input']}"} for row in rows[:9]], rows)


@pytest.mark.parametrize(
    ("outputs", "limit", "warned"),
    [(SORTED, 16, True), (SORTED, 40, False), (SORTED, None, False), (SORTED, 64, False), (MIXED, 16, False),
     (OPEN, 16, False)],
)  # fmt: skip
def test_first_queries_that_lack_most_labels_are_warned_of(
    tmp_path: Path, outputs: list[str], limit: int | None, warned: bool
) -> None:
    events: list[Event] = []
    found = first_queries(_world(tmp_path / "w", outputs), "test", limit, Monitor(events.append))
    assert [query.id for query in found] == [f"q{i}" for i in range(64)][:limit]
    assert [event.note for event in events] == warned * [
        "warning: test queries: the first 16 have 2 of 8 labels, as in a file sorted by label; "
        "leave out -n, or shuffle the file and index it again"
    ]


def test_evaluate_says_so(tmp_path: Path, run: Run) -> None:
    _world(tmp_path / "w", SORTED)
    found = run("evaluate", "-w", tmp_path / "w", "-m", "zero", "--limit", 16, "--seeds", 1)
    assert found.code == 0 and "the first 16 have 2 of 8 labels" in " ".join(found.err.split())
