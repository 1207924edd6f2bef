"""What the list of suspects knows, without an app: which check is needed, what is left of it, what a decision says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from factories.suspects_world import SUSPECTS, make_pool
from icl_curate.engine.base.progress import Monitor
from icl_curate.engine.checks import evidence
from icl_curate.engine.checks.corrections import reasons
from icl_curate.engine.checks.suspects import find_suspects, pool_state
from icl_curate.engine.store.browse import listed
from icl_curate.engine.store.decisions import decide, undo
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.tabs.problems.suspects import SUSPECTS as COLUMNS
from icl_curate.tui.tabs.problems.suspects import SuspectsModel, evidence_table, share, suspect_line, suspects_line

HERE = Settings()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_pool(tmp_path / "w")


def looked(model: SuspectsModel, workspace: Workspace, again: bool = False, cursor: int = 0) -> tuple[bool, int]:
    """Whether it was checked, and the line of the cursor."""
    model.pool_state = pool_state(workspace, HERE)
    check = model.begin(again)
    if check is not None:
        assert model.begin(again) is None, "one is under way"
        model.take(find_suspects(workspace, HERE, Monitor(cancel=check)))
    return check is not None, model.arrange(cursor)


def ids(model: SuspectsModel) -> list[str]:
    return [one.id for one in model.shown]


def test_suspects_are_the_rows_with_findings_the_worst_first(workspace: Workspace) -> None:
    model = SuspectsModel()
    assert looked(model, workspace) == (True, 0)
    assert {one.id: one.kinds[0] for one in model.shown} == SUSPECTS
    weights = [one.weight for one in model.shown]
    assert weights == sorted(weights, reverse=True)
    assert model.rows.tolist() == [one.row for one in model.shown]
    at = next(i for i, column in enumerate(COLUMNS) if column.name == "weight")
    lines = [
        suspect_line(row, one)
        for row, one in zip(listed(workspace, model.rows, model.rows[:0]), model.shown, strict=True)
    ]
    assert [line.cells[at].plain for line in lines] == [share(weight).plain for weight in weights]
    assert any(one.weight > one.evidence.posterior for one in model.shown)


def test_decisions_shorten_the_list_without_a_new_check_and_an_undo_brings_rows_back(workspace: Workspace) -> None:
    model = SuspectsModel()
    looked(model, workspace)
    whole = ids(model)
    here = whole.index("d2")
    decide(workspace, "prune", "demonstration", [whole[0]])
    decide(workspace, "keep", "demonstration", ["c1"])
    assert looked(model, workspace, cursor=here) == (False, [n for n in whole if n not in {whole[0], "c1"}].index("d2"))
    assert ids(model) == [name for name in whole if name not in {whole[0], "c1"}]
    undo(workspace)
    assert looked(model, workspace)[0] is False
    assert ids(model) == [name for name in whole if name != whole[0]]
    assert looked(model, workspace, again=True)[0], "opened anew after decisions"
    undo(workspace)  # the latest check did not see that row
    assert looked(model, workspace)[0]
    assert ids(model) == whole
    assert looked(model, workspace, again=True)[0] is False, "nothing has changed"


def test_a_source_kept_is_no_word_on_its_rows(workspace: Workspace) -> None:
    model = SuspectsModel()
    decide(workspace, "keep", "source", ["s"])
    looked(model, workspace)
    assert len(model.shown) == len(SUSPECTS)
    decide(workspace, "keep", "demonstration", ["d2", "c1"])
    decide(workspace, "restore", "demonstration", ["c1"])
    looked(model, workspace)
    assert set(SUSPECTS) - set(ids(model)) == {"d2"}


def test_one_kind_is_shown_and_labels_that_would_vanish_are_known(workspace: Workspace) -> None:
    model = SuspectsModel()
    looked(model, workspace)
    assert dict(model.kinds()) == {"empty": 1, "mojibake": 1, "conflict": 1, "duplicate": 2, "class": 1}
    labels = {count.label: (count.active, count.left, count.vanishes) for count in model.labels()}
    assert labels == {"rare": (1, 0, True), "a": (10, 7, False), "b": (9, 7, False)}
    assert model.labels()[0].label == "rare", "what loses most comes first"
    model.kind = "duplicate"
    model.arrange(0)
    assert sorted(ids(model)) == ["c3", "d2"]
    assert {count.label: count.left for count in model.labels()} == {"a": 9, "b": 8, "rare": 1}


def test_marked_suspects_that_are_shown_are_decided_each_with_its_reason(workspace: Workspace) -> None:
    model = SuspectsModel()
    looked(model, workspace)
    assert model.targets(0) == model.shown[:1]
    at = {one.id: one.row for one in model.shown}
    model.marks.switch(np.array(sorted([at["d2"], at["c1"]])))
    model.kind = "duplicate"
    model.arrange(0)
    (target,) = model.targets(1)
    assert target.id == "d2" and suspects_line(model).plain.startswith("2 suspects · duplicate  1 marked")
    assert reasons("prune", [target]) == ["check: duplicate, repeats d1"]
    assert reasons("keep", [target]) == ["in review, not suspect: duplicate"]


def test_evidence_without_a_finding_makes_a_suspect_and_its_parts_are_told(
    taught: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace.open(taught)
    monkeypatch.setattr(evidence, "levels", lambda faults, rows: {})  # beside the faulty outputs all others look sound
    found = find_suspects(workspace, HERE)
    (worst, *_) = [one for one in found.rows if one.kinds == ("risk",)]
    assert worst.weight == worst.evidence.posterior >= 0.5 and worst.reason == worst.evidence.reason
    table = evidence_table(worst)
    names = [str(cell).strip() for cell in table.columns[0]._cells]
    assert names[0] == "posterior" and {"source", "trials", "flips"} <= set(names)
    signed = dict(zip(names, (str(cell) for cell in table.columns[1]._cells), strict=True))
    assert signed["trials"] == f"{worst.evidence.parts['trials']:+.1f}"


def test_no_label_table_where_answers_are_open(taught: Path) -> None:
    model = SuspectsModel()
    looked(model, Workspace.open(taught))
    assert model.shown and model.labels() == []


def test_what_is_being_done_is_told(workspace: Workspace) -> None:
    model = SuspectsModel()
    model.pool_state = pool_state(workspace, HERE)
    check = model.begin(True)
    assert check is not None and suspects_line(model).plain == "checking the pool …"
    model.stop()
    assert check.cancelled and model.check is None
    assert suspects_line(model).plain == ""
    assert looked(model, workspace)[0]
    told = suspects_line(model).plain
    assert "6 suspects" in told
    bars = told.partition("doubt 0 ")[2][:10]
    filled = {min(9, int(10 * one.weight)) for one in model.shown}
    assert {at for at, sign in enumerate(bars) if sign != " "} == filled and "█" in bars
