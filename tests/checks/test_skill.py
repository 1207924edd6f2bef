"""Labels that inputs do not tell: who disagrees with classifiers of little skill is no suspect."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from factories.commands import Run
from factories.truth import is_wrong
from icl_curate.engine.checks.active import ActivePool
from icl_curate.engine.checks.check import check_pool
from icl_curate.engine.checks.evidence import row_evidence
from icl_curate.engine.checks.labels import Skill, Verified, judge_labels
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from sklearn.metrics import cohen_kappa_score

SETTINGS = Settings()


def test_kappa_is_cohens() -> None:
    draw = np.random.default_rng(0)
    y, p = draw.integers(0, 4, 300), draw.random((300, 4))
    p[np.arange(300), y] += 0.3
    skill = Skill.of(p, y, verified=False)
    assert skill.kappa == pytest.approx(cohen_kappa_score(y, p.argmax(axis=1)))
    assert skill.right == np.mean(p.argmax(axis=1) == y) and skill.count == 300


@pytest.mark.parametrize(
    ("right", "count", "verified", "enough"),
    [(0.6, 900, False, False), (0.7, 900, False, True), (0.7, 900, True, True), (0.7, 10, True, False),
     (0.9, 10, True, True)],
)  # fmt: skip
def test_few_verified_labels_are_right_by_chance(right: float, count: int, verified: bool, enough: bool) -> None:
    assert Skill(right, 0.5, count, verified).enough is enough


@pytest.mark.parametrize("count", [0, 10, 20, 60])
def test_labels_drawn_at_random_are_told_by_chance_alone_in_any_number(count: int) -> None:
    """Of 12 pools with 10 verified labels as many had skill when it was measured after rows had been left out by what
    these labels taught."""
    enough = []
    for seed in range(12):
        draw = np.random.default_rng(seed)
        x = draw.normal(size=(300 + count, 30)).astype(np.float32)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        said = draw.choice(["no", "yes"], 300 + count).tolist()
        verified = Verified(x[300:], said[300:]) if count else None
        judged = judge_labels(x[:300], said[:300], np.arange(300), verified=verified)
        assert judged and judged.skill and judged.skill.verified is bool(count)
        enough.append(judged.skill.enough)
    assert sum(enough) <= 3, "5 % by chance"


@pytest.mark.parametrize("members", [1, 3])
def test_labels_of_random_sets_are_told_by_chance_alone(members: int) -> None:
    """Three of four labels: each has but two alternatives, its own among them."""
    draw = np.random.default_rng(0)
    y = np.concatenate([draw.choice(4, members, replace=False) for _ in range(2000)])
    p, together = draw.random((len(y), 4)), np.repeat(np.arange(2000), members)
    skill = Skill.of(p, y, False, together)
    assert skill.chance == pytest.approx(1 / (5 - members), abs=0.01) and abs(skill.kappa) < 0.05
    p[np.arange(len(y)), y] += 1
    assert Skill.of(p, y, False, together).kappa == 1


@pytest.mark.parametrize("verified", [0, 40])
def test_fields_that_no_input_tells_are_not_judged(tmp_path: Path, run: Run, verified: int) -> None:
    """Fifty of these rows were named, and none is wrong; the other field is told by its input."""
    draw, things = random.Random(3), ["a red apple", "a small dog", "a steel bridge"]

    def row(i: int) -> dict[str, str]:
        thing = draw.randrange(3)
        answer = {"letter": draw.choice("ABCD"), "kind": ["fruit", "animal", "building"][thing]}
        return {"id": f"r{i}", "input": f"{things[thing]}, number {i}", "output": json.dumps(answer)}

    for name, count, first in (("pool", 300, 0), ("validation", verified, 1000)):
        rows = "".join(json.dumps(row(first + i)) + "\n" for i in range(count))
        (tmp_path / f"{name}.jsonl").write_text(rows)
    given = ("--validation", tmp_path / "validation.jsonl") if verified else ()
    place = ("-w", tmp_path / "w")
    assert run("index", tmp_path / "pool.jsonl", *given, *place, "--near-duplicate", 0.999).code == 0
    told = run("check", "--kind", "part", *place, "--json").json
    assert told["rows"] == [] and told["kinds"] == {"part": 0}
    for command in ("check", "suspects"):
        [note] = [one for one in run(command, *place, "--json").json["notes"] if "parts of outputs" in one]
        assert note.startswith("parts of outputs not judged: 'letter': classifiers predict") and "'kind'" not in note


@pytest.mark.parametrize("verified", [0, 12, 40])
def test_letters_of_options_that_no_input_tells_are_not_judged(tmp_path: Path, run: Run, verified: int) -> None:
    """A multiple-choice pool as it is often shared: the options in the input, the letter of the right one as output.
    Nothing is wrong in it; half of it was named before."""
    draw = random.Random(1)
    words = ["river", "stone", "piano", "letter", "garden", "engine", "window", "pepper", "jacket", "bottle"]

    def question(i: int) -> dict[str, str]:
        options = "  ".join(f"({letter}) {draw.choice(words)}" for letter in "ABCD")
        return {"id": f"q{i}", "input": f"Which {draw.choice(words)} is it? {options}", "output": draw.choice("ABCD")}

    for name, count, first in (("pool", 200, 0), ("validation", verified, 1000)):
        rows = "".join(json.dumps(question(first + i)) + "\n" for i in range(count))
        (tmp_path / f"{name}.jsonl").write_text(rows)
    given = ("--validation", tmp_path / "validation.jsonl") if verified else ()
    place = ("-w", tmp_path / "w")
    assert run("index", tmp_path / "pool.jsonl", *given, *place).code == 0
    told = run("check", "--kind", "label,cut", *place, "--json").json
    assert told["rows"] == [] and told["kinds"] == {"cut": 0}
    whose = f"of {verified} verified labels" if verified else "of the labels"
    assert any(note.startswith("labels not judged: classifiers") and whose in note for note in told["notes"])
    assert any(note.startswith("labels not judged") for note in run("suspects", *place, "--json").json["notes"])


def test_without_verified_labels_confident_learning_is_not_believed_alone(
    support: Path, run: Run, tmp_path: Path
) -> None:
    """It names 359 of the 465 wrong rows and 36 right ones."""
    workspace = Workspace.open(support)
    report = check_pool(ActivePool(workspace, SETTINGS, teachers=[]), ("label",))
    named = [is_wrong()[found.id] for found in report.rows]
    assert sum(named) >= 420 and len(named) - sum(named) <= 25
    assert any("classifiers agree with" in note and "icl-curate verify" in note for note in report.notes)
    decide(workspace, "prune", "demonstration", [name for name, bad in is_wrong().items() if bad])
    assert run("export", tmp_path / "right.jsonl", "-w", support).code == 0
    assert run("index", tmp_path / "right.jsonl", "-w", tmp_path / "right").code == 0
    right = ActivePool(Workspace.open(tmp_path / "right"), SETTINGS)
    assert right.label_predictions and right.label_predictions.suspect.any()
    assert not check_pool(right, ("label",)).rows


def test_too_little_skill_is_a_note_of_the_evidence_too(tmp_path: Path, run: Run) -> None:
    draw = random.Random(2)
    rows = [{"id": f"r{i}", "input": f"number {i}", "output": draw.choice(["yes", "no"])} for i in range(60)]
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("index", tmp_path / "pool.jsonl", "-w", tmp_path / "w").code == 0
    found = row_evidence(ActivePool(Workspace.open(tmp_path / "w"), SETTINGS))
    assert run("prune", "--demo", "r1", "--demo", "r2", "-w", tmp_path / "w").code == 0
    told = run("check", "-w", tmp_path / "w", "--json").json
    assert "label" not in told["kinds"] and sum("labels not judged" in note for note in told["notes"]) == 1
    assert "label" not in found.kinds and any("labels not judged: classifiers" in note for note in found.notes)
