"""Parts of outputs: planted wrong ones are found and corrected, sound ones are left alone, and odd ones do no harm."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from factories.commands import Run
from icl_curate.engine.base.arrays import Float32s
from icl_curate.engine.checks.active import ActivePool
from icl_curate.engine.checks.check import check_pool
from icl_curate.engine.checks.parts import MOST_MEMBERS, PartRatio, judge_parts, parts_of
from icl_curate.engine.checks.posterior import Posterior, fit
from icl_curate.engine.curate.candidates import gather
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.pool.records import Demonstration, Task
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace

OPEN, SETS = Task("open", one_line=False), Task("sets")
TURNED = {"person": "place", "place": "firm", "firm": "person"}
ENDS, AFTER = {"person": "o", "place": "ville", "firm": "corp"}, {"person": "says", "place": "lies", "firm": "sells"}


def _typed(count: int, seed: int = 0) -> list[Demonstration]:
    """Sentences with one to three names, whose type their ends and the words after them tell; of two sources."""
    draw, rows = np.random.default_rng(seed), []
    for i in range(count):
        kinds = [str(kind) for kind in draw.choice(list(ENDS), 1 + i % 3)]
        stems = ["".join(draw.choice(list("bdfgklmnprst"), 4)).capitalize() for _ in kinds]
        names = [stem + ENDS[kind] for stem, kind in zip(stems, kinds, strict=True)]
        text = " and ".join(f"{name} {AFTER[kind]} it" for name, kind in zip(names, kinds, strict=True))
        spans = [{"text": name, "type": kind} for name, kind in zip(names, kinds, strict=True)]
        rows.append(Demonstration(i, f"r{i}", text, json.dumps(spans), "ab"[i % 2]))
    return rows


def _spoilt(rows: Sequence[Demonstration], turned: Sequence[int]) -> list[Demonstration]:
    """The types of all entities of some rows turned."""
    made = list(rows)
    for i in turned:
        spans = [span | {"type": TURNED[span["type"]]} for span in json.loads(made[i].output)]
        made[i] = replace(made[i], output=json.dumps(spans))
    return made


def _vectors(count: int, seed: int = 0) -> Float32s:
    """Of length 1, and of no use."""
    x = np.random.default_rng(seed).normal(size=(count, 16))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def _judged(
    rows: Sequence[Demonstration], verified: Sequence[Demonstration] = (), task: Task = OPEN, x: Float32s | None = None
) -> tuple[PartRatio, Posterior] | None:
    vectors = _vectors(len(rows) + len(verified)) if x is None else x
    given, theirs = vectors[: len(rows)], vectors[len(rows) :]
    every = judge_parts(rows, task, given, np.arange(len(rows)), verified, theirs)
    sources = np.unique([row.source for row in rows], return_inverse=True)[1]
    if not every:
        return None
    ratio = PartRatio(every, sources)
    return ratio, fit(sources, {"part": ratio})


@pytest.mark.parametrize("queries", [0, 60])
def test_types_that_contradict_their_names_are_found_and_corrected(queries: int) -> None:
    """A third of the rows of one source has all types turned by a rule."""
    right, turned = _typed(240), list(range(0, 240, 6))
    rows = _spoilt(right, turned)
    told = _judged(rows, _typed(queries, seed=1))
    assert told
    ratio, fitted = told
    named = set(np.flatnonzero(fitted.bad >= 0.5).tolist())
    assert named == set(turned)
    corrected = ratio.corrections(rows)
    assert all(json.loads(corrected[i][0]) == json.loads(right[i].output) for i in turned)
    assert np.mean([corrected[i][1] for i in turned]) > 0.8


def test_one_wrong_type_among_right_ones_is_corrected_alone() -> None:
    """One of two or three, in half of the rows of one source that have as many."""
    right = _typed(240)
    rows, places = list(right), [i for i in range(1, 240, 2) if i % 3][::2]
    for i in places:
        spans = json.loads(rows[i].output)
        spans[1]["type"] = TURNED[spans[1]["type"]]
        rows[i] = replace(rows[i], output=json.dumps(spans))
    told = _judged(rows, _typed(60, seed=1))
    assert told and set(np.flatnonzero(told[1].bad >= 0.5).tolist()) == set(places)
    corrected = told[0].corrections(rows)
    assert all(json.loads(corrected[i][0]) == json.loads(right[i].output) for i in places)


def test_sound_pools_have_no_improbable_parts() -> None:
    for verified in ((), _typed(60, seed=1)):
        told = _judged(_typed(240), verified)
        assert told and told[1].bad.max() < 0.5


def _sets(count: int, seed: int = 0) -> tuple[list[Demonstration], Float32s]:
    """Rows of one or two of four labels, whose vectors are the sums of those of their labels, with noise."""
    draw, names = np.random.default_rng(seed), np.array(["calm", "glad", "sad", "tired"])
    sets = [draw.choice(4, 1 + i % 2, replace=False) for i in range(count)]
    x = np.stack([np.eye(8)[own].sum(axis=0) for own in sets]) + draw.normal(0, 0.15, (count, 8))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    rows = [Demonstration(i, f"r{i}", f"m {i}", ", ".join(names[own]), "ab"[i % 2]) for i, own in enumerate(sets)]
    return rows, x.astype(np.float32)


def test_wrong_labels_of_sets_are_found_and_other_labels_of_a_set_are_none() -> None:
    rows, x = _sets(300)
    wrong = {i for i in range(0, 300, 10) if "tired" not in rows[i].output}
    spoilt = [replace(row, output="tired") if i in wrong else row for i, row in enumerate(rows)]
    assert len(wrong) > 10
    for said, expected in ((rows, set[int]()), (spoilt, wrong)):
        told = _judged(said, task=SETS, x=x)
        assert told and set(np.flatnonzero(told[1].bad >= 0.5).tolist()) == expected
        assert told[0].corrections(said) == {}, "labels of a set are not corrected one by one"


def test_a_field_of_few_values_is_judged_by_the_whole_input_and_never_corrected_alone() -> None:
    """The other fields go with the wrong value, and would be wrong beside the right one."""
    draw, x = np.random.default_rng(0), np.zeros((200, 8), np.float32)
    intents, rows = draw.integers(0, 3, 200), []
    x[np.arange(200), intents] = 1.0
    for i, intent in enumerate(intents.tolist()):
        said = {"intent": f"i{(intent + 1) % 3 if i % 8 == 0 else intent}", "note": f"n{i}"}
        rows.append(Demonstration(i, f"r{i}", f"text {i}", json.dumps(said), "s"))
    told = _judged(rows, x=x + draw.normal(0, 0.05, x.shape).astype(np.float32))
    assert told and set(np.flatnonzero(told[1].bad >= 0.5).tolist()) == set(range(0, 200, 8))
    assert all(chance < 0.01 for _, chance in told[0].corrections(rows).values())


HOSTILE = [
    '[{"text": "", "type": ""}]',
    '[{"text": null, "type": 5}, {"type": "person"}, 7, [[]], null]',
    '[{"text": "A", "type": "person"',
    json.dumps([{"text": f"N{i}o", "type": "person"} for i in range(10_000)]),
    json.dumps([{"text": f"N{i}o", "type": "person"} for i in range(500)]),
    '[{"text": "Bo", "type": ' + "9" * 4_000 + "}]",
    '[{"text": "' + "x" * 100_000 + '", "type": "firm"}]',
    "[" * 50_000,
]


def test_hostile_outputs_do_no_harm() -> None:
    right = _typed(240)
    rows = [replace(row, output=HOSTILE[i]) if i < len(HOSTILE) else row for i, row in enumerate(right)]
    places = [part.place for part in parts_of(rows, OPEN) if part.slot == "[].type"]
    assert np.bincount(places).max() == MOST_MEMBERS
    told = _judged(rows, [replace(row, output=HOSTILE[i % len(HOSTILE)]) for i, row in enumerate(_typed(14, seed=1))])
    assert told and np.isfinite(told[1].bad).all() and (told[1].bad[len(HOSTILE) :] < 0.5).all()
    told[0].corrections(rows)


def test_few_rows_and_other_tasks_have_no_parts() -> None:
    assert _judged(_typed(20)) is None and _judged([]) is None
    assert _judged([replace(row, output="free text") for row in _typed(60)]) is None
    for kind in ("labels", "options"):
        assert list(parts_of(_typed(60), Task(kind))) == []


def test_the_least_probable_part_is_told_with_its_field_whichever_stands_last(tmp_path: Path, run: Run) -> None:
    right, turned, draw, rows = _typed(240), list(range(0, 240, 6)), np.random.default_rng(0), []
    for row, own in zip(_spoilt(right, turned), right, strict=True):
        spans = [
            span | {"mark": kept["type"][:2] if draw.random() < 0.6 else str(draw.choice(["pe", "pl", "fi"]))}
            for span, kept in zip(json.loads(row.output), json.loads(own.output), strict=True)
        ]
        rows.append({"id": row.id, "input": row.input, "output": json.dumps(spans)})
    (tmp_path / "pool.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert run("index", tmp_path / "pool.jsonl", "-w", tmp_path / "w").code == 0
    found = check_pool(ActivePool(Workspace.open(tmp_path / "w"), Settings()), ["part"]).rows
    wrong = [one for one in found if int(one.id[1:]) in turned]
    assert len(wrong) > 8 and all("', at 0.0" in one.evidence for one in wrong)
    assert sum("' in '[].type', at " in one.evidence for one in wrong) > len(wrong) / 2


def test_parts_reach_prune_relabel_and_the_candidates_of_curate(tmp_path: Path, run: Run) -> None:
    right, turned = _typed(240), list(range(0, 240, 6))
    for name, rows in (("pool", _spoilt(right, turned)), ("queries", _typed(60, seed=1))):
        lines = [json.dumps({"id": f"{name}{r.row}", "input": r.input, "output": r.output, "source": r.source})
                 for r in rows]  # fmt: skip
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    workspace, here = Workspace.create(tmp_path / "w"), tmp_path / "w"
    paths, queries = (str(tmp_path / "pool.jsonl"),), (str(tmp_path / "queries.jsonl"),)
    index_pool(workspace, IndexPlan(paths=paths, validation=queries))
    assert run("index", "-w", here, "--json").code == 0

    pool = ActivePool(workspace, Settings())
    found = check_pool(pool, ["part"]).rows
    expected = {one.id for one in found}
    assert pool.taught and expected <= {f"pool{i}" for i in turned} and len(expected) >= 0.75 * len(turned)
    evidence = gather(workspace, Settings(), relabel=True)
    assert evidence.taught and set(evidence.suspected.tolist()) == {one.row for one in found}
    assert {row for row, (_, chance) in evidence.corrections.items() if chance > 0.5} >= {one.row for one in found}
    pruned = run("check", "prune", "part", "--dry-run", "-w", here, "--json").json["pruned"]
    assert set(pruned) == expected
    assert run("check", "relabel", "--kind", "part", "-w", here, "--json").code == 0
    told = {row["id"]: row["output"] for row in run("demos", "-w", here, "-n", 300, "--json").json["demonstrations"]}
    assert all(
        json.loads(told[f"pool{i}"]) == json.loads(right[i].output) for i in range(240) if f"pool{i}" in expected
    )
