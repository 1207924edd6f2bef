"""Outputs moved to other rows, found by what outputs share with their inputs."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from factories.commands import Run
from icl_curate.engine.checks.mismatch import LEAST, OTHERS, RECURRING, mismatches, mixture
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.pool.records import Demonstration
from icl_curate.engine.retrieval.bm25 import tokenise
from icl_curate.engine.store.workspace import Workspace

ITEMS, TOWNS = ("chairs", "lamps", "cables", "mugs", "desks", "clocks"), ("Leeds", "York", "Bath", "Derby", "Ripon")
PEOPLE = ("Anna", "Ben", "Carla", "David", "Elena", "Felix", "Grace")


def _orders(count: int, moved: float = 0.0, seed: int = 0) -> tuple[list[Demonstration], list[bool]]:
    """Messages and their records; a share of the records are those of other rows."""
    draw = np.random.default_rng(seed)
    facts = [(draw.integers(2, 90), draw.choice(ITEMS), draw.choice(TOWNS), draw.choice(PEOPLE)) for _ in range(count)]
    wrong = (draw.random(count) < moved).tolist()
    others = [(i + 1 + int(draw.integers(count - 1))) % count if wrong[i] else i for i in range(count)]
    rows = [
        Demonstration(
            i, f"r{i}", f"{facts[i][3]} from {facts[i][2]} asks for {facts[i][0]} {facts[i][1]}",
            "{} {} to {} for {}".format(*facts[others[i]]), "s",
        )
        for i in range(count)
    ]  # fmt: skip
    return rows, [facts[i] != facts[other] for i, other in enumerate(others)]


def _named(rows: Sequence[Demonstration]) -> set[int]:
    found = mismatches(rows)
    assert found.usable
    return set(np.flatnonzero(found.probabilities >= 0.9).tolist())


@pytest.mark.parametrize("moved", [0.1, 0.3, 0.5])
def test_moved_outputs_are_found_and_hardly_another_is_named(moved: float) -> None:
    rows, wrong = _orders(400, moved)
    named = _named(rows)
    right = sum(wrong[i] for i in named)
    assert right / len(named) > 0.95
    assert right / sum(wrong) > 0.7  # by chance a tenth of the foreign outputs fit well


def test_in_pools_without_faults_next_to_nothing_is_named() -> None:
    assert sum(len(_named(_orders(300, seed=seed)[0])) for seed in range(20)) <= 0.005 * 20 * 300


def test_outputs_that_share_nothing_with_their_inputs_are_not_judged() -> None:
    rows = [Demonstration(i, f"r{i}", f"who wrote book {i}", f"author{i % 97} name{i}", "s") for i in range(300)]
    found = mismatches(rows)
    assert not found.usable and not found.probabilities.any()
    assert 0.4 < np.nanmean(found.ranks) < 0.6  # ranks that mean nothing are uniform
    assert not mismatches(_orders(LEAST - 1)[0]).usable


def test_an_output_of_many_rows_belongs_to_none_of_them() -> None:
    rows, _ = _orders(200)
    yes = [Demonstration(200 + i, f"y{i}", f"is {i} even", "yes", "s") for i in range(RECURRING)]
    found = mismatches([*rows, *yes])
    assert np.isnan(found.ranks[200:]).all() and not found.probabilities[200:].any()
    fewer = mismatches([*rows, *yes[1:]])
    assert np.isfinite(fewer.ranks[200:]).all()


def test_ranks_are_those_of_cosines_counted_one_by_one() -> None:
    rows = [
        *_orders(40, 0.4, seed=3)[0],
        Demonstration(40, "c", "who has it", "Zoe of Wells", "s", context="Zoe of Wells keeps it, Anna does not."),
    ]
    assert len(rows) < OTHERS  # all others are compared with
    texts = [f"{row.input}\n{row.context}" for row in rows] + [row.output for row in rows]
    seen = Counter(word for text in texts for word in set(tokenise(text)))

    def vector(text: str) -> dict[str, float]:
        counts = Counter(tokenise(text))
        found = {w: (1 + math.log(c)) * (math.log((1 + len(texts)) / (1 + seen[w])) + 1) for w, c in counts.items()}
        length = math.sqrt(sum(x * x for x in found.values()))
        return {word: x / length for word, x in found.items()}

    ranks = mismatches(rows).ranks
    for row, rank in zip(rows, ranks.tolist(), strict=True):
        given = vector(f"{row.input}\n{row.context}")
        fits = {
            output: sum(x * given.get(word, 0.0) for word, x in vector(output).items())
            for output in {other.output for other in rows}
        }
        others = [fits[other.output] - fits[row.output] for other in rows if other.output != row.output]
        better = sum(each > 1e-9 for each in others)
        equal = sum(abs(each) <= 1e-9 for each in others)
        assert better < rank * (len(others) + 1) <= better + equal + 1 + 1e-9, row.id
    assert ranks[40] < 0.05


def test_probabilities_are_those_of_the_mixture_that_the_ranks_were_drawn_from() -> None:
    draw = np.random.default_rng(1)
    ranks = np.concatenate([draw.random(4_000), draw.random(6_000) * 0.05])
    known = mixture(ranks)
    assert known is not None
    found, ratios = known
    assert np.allclose(ratios[ranks <= 0.05], -np.log(20), atol=0.1) and (ratios[ranks > 0.05] > 3).all()
    assert found[ranks > 0.05] == pytest.approx(1.0, abs=0.15)
    assert found[ranks <= 0.05].mean() == pytest.approx(0.4 * 0.05 / (0.4 * 0.05 + 0.6), abs=0.01)
    assert mixture(draw.random(5_000)) is None
    assert mixture(np.concatenate([draw.random(9_000), draw.random(1_000) * 0.05])) is None  # too few tell
    slight = np.concatenate([draw.random(2_000), draw.beta(1, 4, 8_000)])
    assert mixture(slight) is None  # outputs that belong to their inputs do not stand out


def test_check_names_them_and_they_are_evidence(run: Run, tmp_path: Path) -> None:
    rows, wrong = _orders(120, 0.3)
    lines = [json.dumps({"id": row.id, "input": row.input, "output": row.output}) for row in rows]
    (tmp_path / "pool.jsonl").write_text("\n".join(lines), encoding="utf-8")
    there = ("-w", tmp_path / "w")
    index_pool(Workspace.create(tmp_path / "w"), IndexPlan(paths=(str(tmp_path / "pool.jsonl"),)))
    found = run("check", "--kind", "mismatch", "--json", *there).json
    assert found["kinds"] == {"mismatch": len(found["rows"])}
    assert found["rows"] and all(wrong[int(row["id"][1:])] and row["suggestion"] == "prune" for row in found["rows"])
    suspects = run("suspects", "-n", 200, "--json", *there).json["demonstrations"]
    order = [wrong[int(row["id"][1:])] for row in suspects]
    assert all(order[: sum(wrong) // 2])
    assert all("match" in row["parts"] for row in suspects)
