"""Decisions against a straight-line model of "the last word wins"."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.store import decisions
from icl_curate.engine.store.decisions import (
    Effects,
    LabelLoss,
    Revision,
    decide,
    decided_rows,
    history,
    redo,
    relabel,
    revise,
    undo,
)
from icl_curate.engine.store.workspace import Workspace

IDS = [f"d{i}" for i in range(6)]
SOURCE = {demonstration: f"s{i % 2}" for i, demonstration in enumerate(IDS)}


def _pool(path: Path) -> Workspace:
    store = Workspace.create(path)
    with store.write() as con:
        for row, name in enumerate(IDS):
            con.execute(
                "INSERT INTO demonstrations VALUES (?, ?, 'q', 'a', [], [], '', ?, 'pool', '{}', 'h', 'f', 1,"
                " now()::TIMESTAMP, NULL, NULL)",
                [row, name, SOURCE[name]],
            )
    return store


def _active(store: Workspace) -> set[str]:
    with store.read() as con:
        return {name for (name,) in con.execute("SELECT id FROM active").fetchall()}


STEP = st.one_of(
    st.tuples(
        st.sampled_from(["prune", "restore"]), st.just("source"), st.sets(st.sampled_from(["s0", "s1"]), min_size=1)
    ),
    st.tuples(
        st.sampled_from(["prune", "restore"]), st.just("demonstration"), st.sets(st.sampled_from(IDS), min_size=1)
    ),
    st.just(("undo", "batch", set())),
    st.just(("redo", "batch", set())),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=8))
@example(
    steps=[("prune", "source", {"s0"}), ("restore", "demonstration", {"d0"}), ("undo", "batch", set()),
     ("undo", "batch", set()), ("redo", "batch", set()), ("undo", "batch", set()), ("redo", "batch", set()),
     ("redo", "batch", set())]
)  # fmt: skip
def test_the_last_word_wins_undo_takes_it_back_and_redo_brings_it_back(
    steps: list[tuple[str, str, set[str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = _pool(tmp_path_factory.mktemp("w"))
    words: list[tuple[str, str, set[str]]] = []
    gone: list[tuple[str, str, set[str]]] = []

    def pruned(name: str) -> bool:
        said = [action for action, _, targets in words if targets & {name, SOURCE[name]}]
        return said[-1:] == ["prune"]

    def is_so(action: str, scope: str, target: str) -> bool:
        """Whether the decision would change nothing, now or later."""
        ended = [pruned(name) for name in IDS if target in (name, SOURCE[name])]
        own = [word for word, what, targets in words if what == scope and target in targets][-1:]
        if action == "prune":
            return all(ended) and (scope == "demonstration" or own == ["prune"])
        return not any(ended) and (own not in (["prune"], ["keep"]) if action == "restore" else own == ["keep"])

    for action, scope, targets in steps:
        if action == "undo":
            if not words:
                with pytest.raises(UsageError):
                    undo(store)
                continue
            gone.append(words.pop())
            undo(store)
        elif action == "redo":
            if not gone:
                with pytest.raises(UsageError):
                    redo(store)
                continue
            words.append(gone.pop())
            redo(store)
        else:
            changed = {target for target in targets if not is_so(action, scope, target)}
            if not changed:
                with pytest.raises(UsageError, match="already"):
                    decide(store, action, scope, sorted(targets))  # type: ignore[arg-type]
                continue
            gone.clear()
            change = decide(store, action, scope, sorted(targets))  # type: ignore[arg-type]
            assert change.targets == tuple(sorted(changed))
            words.append((action, scope, changed))
        assert _active(store) == {d for d in IDS if not pruned(d)}


def test_a_dry_run_says_what_would_happen_and_does_nothing(tmp_path: Path) -> None:
    store = _pool(tmp_path)
    planned = decide(store, "prune", "source", ["s1"], dry_run=True)
    assert (planned.active_before, planned.active_after) == (6, 3)
    assert planned.pruned_sources == ("s1",)
    assert _active(store) == set(IDS)
    assert history(store) == []
    done = decide(store, "prune", "source", ["s1"])
    assert (done.active_after, done.kept_sources) == (planned.active_after, ("s0",))


def test_unknown_targets_are_refused_with_a_near_name(tmp_path: Path) -> None:
    store = _pool(tmp_path)
    with pytest.raises(UsageError, match="did you mean"):
        decide(store, "prune", "source", ["s11"])
    with pytest.raises(UsageError, match="nobody"):
        decide(store, "prune", "demonstration", ["d1", "nobody"])
    assert history(store) == []


def test_history_keeps_every_decision_and_marks_the_undone(tmp_path: Path) -> None:
    store = _pool(tmp_path)
    decide(store, "prune", "demonstration", ["d1", "d3"], reason="wrong labels", who="ada")
    undo(store, who="ada")
    latest, first = history(store)
    assert (latest.action, latest.targets) == ("undo", (str(first.batch),))
    assert (first.who, first.reason, first.targets, first.undone) == ("ada", "wrong labels", ("d1", "d3"), True)
    with store.read() as con:
        assert con.execute("SELECT count(*), count(DISTINCT seq) FROM decisions").fetchone() == (3, 3)


LABELS = {"d0": "rare", "d1": "rare", "d2": "common", "d3": "common", "d4": "common", "d5": "single"}


@pytest.fixture
def labelled(tmp_path: Path) -> Workspace:
    """Even rows are of s0, odd ones of s1."""
    store = _pool(tmp_path)
    with store.write() as con:
        con.execute("INSERT INTO meta VALUES ('task', 'labels')")
        con.executemany("UPDATE demonstrations SET output = ? WHERE id = ?", [[v, k] for k, v in LABELS.items()])
    return store


def test_a_decision_says_which_sources_and_labels_come_and_go(labelled: Workspace) -> None:
    planned = decide(labelled, "prune", "source", ["s1"], dry_run=True)
    assert planned.effects == Effects(("s1",), (), ("single",), (), (LabelLoss("rare", 2, 1),))
    both = revise(labelled, Revision(("s1",), ("d0",)))
    assert both.effects == Effects(("s1",), (), ("rare", "single"))
    assert both.as_json()["labels_gone"] == ["rare", "single"]
    assert decide(labelled, "prune", "demonstration", ["d2"]).effects == Effects(
        label_losses=(LabelLoss("common", 2, 1),)
    )
    undo(labelled)
    assert undo(labelled).effects == Effects((), ("s1",), (), ("rare", "single"))
    assert decide(labelled, "keep", "source", ["s0"]).effects == Effects()


def test_a_correction_can_end_a_label_and_begin_one(labelled: Workspace) -> None:
    assert relabel(labelled, {"d5": "common"}).effects == Effects(labels_gone=("single",))
    assert relabel(labelled, {"d0": "new"}, new=True).effects == Effects(
        labels_added=("new",), label_losses=(LabelLoss("rare", 2, 1),)
    )


def test_a_revision_is_one_decision_that_one_undo_reverts(labelled: Workspace) -> None:
    wanted = Revision(("s1",), ("d0",), {"d2": "rare", "d4": "common"})
    planned = revise(labelled, wanted, dry_run=True)
    assert (planned.active_after, history(labelled), _outputs(labelled)) == (2, [], LABELS)
    done = revise(labelled, wanted, "both", "ada")
    assert (done.action, done.scope) == ("prune and relabel", "source and demonstration and output")
    assert done.targets == ("s1", "d0", "d2"), "d4 has that output already"
    assert (_active(labelled), _outputs(labelled)) == ({"d2", "d4"}, LABELS | {"d2": "rare"})
    (kept,) = history(labelled)
    assert (kept.action, kept.targets, kept.reason, kept.who) == ("prune and relabel", done.targets, "both", "ada")
    undo(labelled)
    assert (_active(labelled), _outputs(labelled)) == (set(IDS), LABELS)


def test_a_revision_leaves_out_an_output_that_is_so_already(labelled: Workspace) -> None:
    relabel(labelled, {"d2": "rare"})
    assert revise(labelled, Revision((), ("d0",), {"d2": "rare"})).targets == ("d0",)
    assert history(labelled)[0].action == "prune" and _active(labelled) == set(IDS) - {"d0"}
    with pytest.raises(UsageError, match="the output of 'd2' is so already"):
        revise(labelled, Revision((), (), {"d2": "rare"}))


def test_a_revision_is_made_whole_or_not_at_all(labelled: Workspace) -> None:
    for refused in (Revision(), Revision(("s1",), (), {"d0": "unheard of"}), Revision(("s1",), ("nobody",))):
        with pytest.raises(UsageError):
            revise(labelled, refused)
        assert (_active(labelled), _outputs(labelled), history(labelled)) == (set(IDS), LABELS, [])


def _outputs(store: Workspace) -> dict[str, str]:
    with store.read() as con:
        return dict(con.execute("SELECT id, output FROM demonstrations ORDER BY row").fetchall())


def test_open_answers_are_no_labels(tmp_path: Path) -> None:
    assert decide(_pool(tmp_path), "prune", "source", ["s0", "s1"]).effects == Effects(("s0", "s1"))


def test_a_correction_is_undone_and_done_again_and_its_rows_are_told(labelled: Workspace) -> None:
    relabel(labelled, {"d0": "common"})
    relabel(labelled, {"d0": "single", "d2": "single"})

    def outputs() -> list[str]:
        with labelled.read() as con:
            return [text for (text,) in con.execute("SELECT output FROM pool WHERE id IN ('d0', 'd2')").fetchall()]

    undo(labelled)
    undo(labelled)
    assert sorted(outputs()) == ["common", "rare"]
    redo(labelled)
    assert outputs() == ["common", "common"]
    redo(labelled)
    assert outputs() == ["single", "single"]
    made = {entry.batch: entry for entry in history(labelled)}
    assert made[2].by == {"→ single": 2} and not made[2].undone and made[6].action == "redo"
    rows = decided_rows(labelled, 2)
    assert [(row.id, row.before, row.after) for row in rows] == [("d0", "common", "single"), ("d2", "common", "single")]
    assert [(row.id, row.source) for row in decided_rows(labelled, 1)] == [("d0", "s0")]


def test_history_counts_the_rows_of_sources_and_of_demonstrations(tmp_path: Path) -> None:
    store = _pool(tmp_path)
    decide(store, "prune", "source", ["s1"])
    decide(store, "keep", "demonstration", ["d1", "d0", "d2"])
    latest, first = history(store)
    assert first.by == {"s1": 3} and latest.by == {"s0": 2, "s1": 1}
    assert [row.id for row in decided_rows(store, 1)] == ["d1", "d3", "d5"]


def test_the_rows_of_decisions_are_joined_by_hash(tmp_path: Path) -> None:
    """20,000 decisions on a million rows took half a minute where each row was compared with each of them."""
    store = _pool(tmp_path)
    decide(store, "prune", "demonstration", ["d1", "d2"])
    for query, values in ((decisions._COUNTS, []), (decisions._CHANGED, []), (decisions._ON_ROWS, [[0, 1]])):
        with store.read() as con:
            plan = "\n".join(text for _, text in con.execute(f"EXPLAIN {query}", values).fetchall())
        assert "Hash Join" in plan and "Nl Join" not in plan and "Cross Product" not in plan


def test_a_mark_that_names_no_batch_is_none(tmp_path: Path) -> None:
    store = _pool(tmp_path)
    decide(store, "prune", "source", ["s1"])
    with store.write() as con:  # as only a stranger's workspace has it
        con.execute("INSERT INTO decisions VALUES (9, 9, now()::TIMESTAMP, 'x', 'undo', 'batch', 'no number', '')")
    assert _active(store) == {d for d in IDS if SOURCE[d] == "s0"}
    assert undo(store).targets == ("1",) and redo(store).targets == ("1",)


def test_what_was_undone_before_another_decision_stays_undone_and_that_is_said(tmp_path: Path) -> None:
    store = _pool(tmp_path)
    with pytest.raises(UsageError, match="nothing undone to bring back"):
        redo(store)
    decide(store, "prune", "source", ["s1"])
    undo(store)
    decide(store, "prune", "demonstration", ["d0"])
    with pytest.raises(UsageError, match="a decision was made since the last undo"):
        redo(store)


def test_what_is_pruned_already_keeps_its_reason(tmp_path: Path) -> None:
    store = _pool(tmp_path)
    decide(store, "prune", "demonstration", ["d0", "d2"], ["a leak", "not ours"])
    change = decide(store, "prune", "demonstration", ["d2", "d4", "d0"], ["x", "y", "z"])
    assert change.targets == ("d4",) and change.active_before - change.active_after == 1
    for scope, target in (("demonstration", "d0"), ("demonstration", "d4")):
        with pytest.raises(UsageError, match=f"'{target}' is pruned already") as caught:
            decide(store, "prune", scope, [target], "another reason")  # type: ignore[arg-type]
        assert caught.value.fix == f"icl-curate restore --demo {target}"
    assert {one.reason for one in history(store)} == {"a leak …", "y"}
    change = decide(store, "prune", "source", ["s0"])  # rows that it will get are pruned, too
    assert change.active_before == change.active_after and change.by == {}
    with pytest.raises(UsageError, match="'s0' is pruned already"):
        decide(store, "prune", "source", ["s0"])
    with pytest.raises(UsageError, match="all 2 are active already"):
        decide(store, "restore", "demonstration", ["d1", "d3"])
    decide(store, "prune", "demonstration", ["d1"])
    assert decide(store, "prune", "source", ["s1"], dry_run=True).by == {"s1": 2}  # which is what the question says
    decide(store, "restore", "source", ["s1"])
    restored = history(store)[0]
    assert restored.by == {"s1": 1} and len(decided_rows(store, restored.batch)) == 1
    decide(store, "prune", "source", ["s1"])
    decide(store, "restore", "source", ["s1"])
    assert [made.by for made in history(store)[:2]] == [{"s1": 3}] * 2


def test_a_target_named_twice_is_one(tmp_path: Path) -> None:
    store = _pool(tmp_path / "w")
    change = decide(store, "prune", "demonstration", ["d0", "d1", "d0"], dry_run=True)
    assert change == decide(store, "prune", "demonstration", ["d0", "d1"], dry_run=True)
    decide(store, "prune", "demonstration", ["d0", "d0"])
    assert history(store)[0].targets == ("d0",) and len(_active(store)) == 5
