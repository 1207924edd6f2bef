"""Pruning and relabelling a demonstration wherever one is shown: in Preview, Calibrate and the list of suspects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factories.copies import indexed, lines
from factories.reviewing import go, lines_of, notified, session, settled, text_of, until
from factories.suspects_world import make_pool as make_suspects
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.store.browse import pruned_rows
from icl_curate.engine.store.decisions import decide, history, ids_in_pool
from icl_curate.engine.store.demonstrations import find
from icl_curate.engine.store.outputs import relabelled
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs.dialog import Pick
from icl_curate.tui.dialogs.help import Help
from icl_curate.tui.row_keys import PoolTable
from icl_curate.tui.widgets.field import Field

LABELS = ["red", "green", "blue"]


def make(folder: Path, labels: bool = True, tab: str = "preview") -> Workspace:
    """A pool and queries that share words, without vectors; ``tab`` is opened first."""
    output = (
        (lambda i: LABELS[i % 3]) if labels else (lambda i: f"a long answer of its own about the word{i} [/b] here")
    )
    rows = [
        {"id": f"d{i}", "input": f"word{i} word{i + 1} card number{i}", "output": output(i), "source": f"source{i % 2}"}
        for i in range(24)
    ]
    queries = [{"id": f"q{i}", "input": f"word{i} word{i + 2} asked{i}", "output": output(i)} for i in range(4)]
    workspace = indexed(folder / "w", pool=lines(rows), validation=lines(queries))
    (workspace.path / "config.toml").write_text('k = 3\nmethod = "bm25"\n')
    kept = {"tab": tab, "tabs": {"preview": {"methods": ["bm25", "random"]}}}
    (workspace.path / "review.json").write_text(json.dumps(kept))
    return workspace


def shots(tab: Any) -> list[str]:
    chosen = tab.model.sides[0].chosen
    return [shot.id for shot in chosen.shots] if chosen else []


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_preview_shows_sources_and_keys_and_says_what_pruning_has_changed(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    made = make(tmp_path)

    async def script(app: ReviewApp, pilot: Any) -> None:
        tab: Any = app.tab
        footer = lines_of(app)[-1]
        assert "Inspect" in footer and "x Prune" in footer and "e Relabel" in footer
        first = find(made, shots(tab)[0])
        head = next(line for line in lines_of(app) if "output" in line and "source" in line)
        assert head.count("source") == 2 and any(first.source in line for line in lines_of(app))
        before = shots(tab)
        await pilot.press("j", "x")
        await until(pilot, lambda: before[1] not in shots(tab) and len(shots(tab)) == 3)
        await settled(pilot)
        [came] = set(shots(tab)) - set(before)
        assert f"new: #{list(shots(tab)).index(came) + 1}" in text_of(app)
        assert size == (80, 24) or f"{came} for {before[1]}" in text_of(app)
        assert tab.side().table.cursor == 1
        assert history(made)[0].reason == "in review, preview of q0"
        await pilot.press("u")
        await until(pilot, lambda: shots(tab) == before)
        await settled(pilot)
        assert "new: #2" in text_of(app)
        await pilot.press("n")
        await settled(pilot)
        assert "new: #" not in text_of(app), "that belongs to the query before"

    session(made.path, script, size)


def test_a_label_is_corrected_by_choice_and_what_is_read_can_be_pruned(tmp_path: Path) -> None:
    made = make(tmp_path)

    async def script(app: ReviewApp, pilot: Any) -> None:
        tab: Any = app.tab
        name = shots(tab)[0]
        now = find(made, name).output
        await pilot.press("e", *next(label for label in LABELS if label != now), "enter")  # before the labels are read
        await until(pilot, lambda: history(made))
        await settled(pilot)
        assert [(each.id, each.has) for each in relabelled(made)] == [(name, now)]
        assert "corrected 1 output" in notified(app) and shots(tab)[0] == name
        await pilot.press("u", "enter")
        await settled(pilot)
        assert not relabelled(made) and app.focused is tab._reader
        await pilot.press("x")
        await until(pilot, lambda: name not in shots(tab))
        await pilot.press("escape", "e")
        await settled(pilot)
        assert isinstance(app.screen, Pick)
        await pilot.press("escape")
        assert len(history(made)) == 3

    session(made.path, script)


def test_an_open_answer_is_corrected_as_a_text(tmp_path: Path) -> None:
    made = make(tmp_path, labels=False)

    async def script(app: ReviewApp, pilot: Any) -> None:
        tab: Any = app.tab
        name = shots(tab)[0]
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        await pilot.press("enter")
        await settled(pilot)
        assert not history(made), "nothing was changed"
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        await settled(pilot)  # the field is there, with its text
        await pilot.press("end", *" now", "enter")
        await until(pilot, lambda: history(made))
        assert find(made, name).output.endswith("here now")

    session(made.path, script)


def test_a_key_never_acts_on_rows_that_are_about_to_go_or_gone_already(tmp_path: Path) -> None:
    made = make(tmp_path)

    async def script(app: ReviewApp, pilot: Any) -> None:
        tab: Any = app.tab
        name = shots(tab)[0]
        tab.action_step(1)
        tab.action_prune_row()  # the demonstrations of the next query are not shown yet
        await settled(pilot)
        assert "still selecting" in notified(app) and not history(made)
        await pilot.press("N")
        await settled(pilot)
        tab.action_prune_row()
        tab.action_prune_row()  # the same row: the first decision is being written
        await until(pilot, lambda: "pruned already" in notified(app))
        await settled(pilot)
        assert [entry.targets for entry in history(made)] == [(name,)]

    session(made.path, script)
    pool = tmp_path / "pool.jsonl"
    row = find(made, "d5").row
    pool.write_text(pool.read_text().replace("card number5", "another text"))
    index_pool(made, IndexPlan(paths=(str(pool),)))
    assert find(made, "d5").row != row
    with pytest.raises(UsageError, match="no longer in its file"):
        ids_in_pool(made, [row])


def test_documents_of_the_pool_are_mended_in_calibrate(tmp_path: Path) -> None:
    made = make(tmp_path, tab="calibrate")

    async def script(app: ReviewApp, pilot: Any) -> None:
        tab: Any = app.tab
        assert "d Documents" in lines_of(app)[-1] and "x Prune" not in lines_of(app)[-1]
        await pilot.press("d", "j")
        await settled(pilot)
        assert isinstance(app.focused, PoolTable) and "x Prune" in lines_of(app)[-1]
        documents = [one.id for one in tab.model.stepped.documents]
        assert f"{documents[1]}  from source" in text_of(app)
        await pilot.press("x")
        await until(pilot, lambda: documents[1] not in [one.id for one in tab.model.stepped.documents])
        await settled(pilot)
        assert app.focused is tab.documents and tab.documents.cursor == 1
        assert history(made)[0].reason == "in review, a document of q0"
        await pilot.press("u", "e", *"re")
        await settled(pilot)
        assert isinstance(app.screen, Pick) and "Correct output of" in text_of(app)
        await pilot.press("escape", "question_mark")
        assert isinstance(app.screen, Help) and "Correct the output" in text_of(app)
        await pilot.press("escape", "enter", "escape")
        assert app.focused is tab.documents
        await pilot.press("escape", "e")
        await settled(pilot)
        assert isinstance(app.screen, Pick), "in the queue, e writes a note"

    session(made.path, script)
    assert not len(pruned_rows(made))


def test_in_calibrate_the_latest_of_notes_and_prunings_is_undone(tmp_path: Path) -> None:
    made = make(tmp_path, tab="calibrate")

    async def script(app: ReviewApp, pilot: Any) -> None:
        tab: Any = app.tab
        await pilot.press("e", *"odd", "enter")
        await settled(pilot)
        await pilot.press("d", "x", "u")
        await settled(pilot)
        assert [one.action for one in history(made)] == ["undo", "prune"] and len(tab.model.found.reviews) == 1
        await pilot.press("u")
        await settled(pilot)
        assert len(history(made)) == 2 and not tab.model.found.reviews

    session(made.path, script)


def test_passages_of_a_query_are_not_rows_of_the_pool(tmp_path: Path) -> None:
    made = make(tmp_path, tab="calibrate")
    asked = tmp_path / "validation.jsonl"
    asked.write_text(json.dumps({"id": "q", "input": "word1", "output": "red", "context": "One.\n\nTwo."}) + "\n")
    index_pool(made, IndexPlan(validation=(str(asked),)))

    async def script(app: ReviewApp, pilot: Any) -> None:
        await pilot.press("d", "x")
        await settled(pilot)
        assert isinstance(app.focused, PoolTable) and "x Prune" not in lines_of(app)[-1]

    session(made.path, script)
    assert not history(made)


def test_a_suspect_with_an_open_answer_is_corrected_as_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_suspects(tmp_path / "w")
    with made.write() as con:
        con.execute("UPDATE meta SET value = 'open' WHERE key = 'task'")

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "problems")
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        await pilot.press("end", *"nother", "enter")
        await until(pilot, lambda: history(made))
        assert history(made)[0].reason.startswith("in review: ")
        await settled(pilot)
        await pilot.press("a", "e")
        await settled(pilot)
        assert "one by one" in notified(app)

    session(made.path, script)


def test_marked_rows_of_demos_get_one_label_together(tmp_path: Path) -> None:
    made = make(tmp_path, tab="demos")

    async def script(app: ReviewApp, pilot: Any) -> None:
        tab: Any = app.tab
        await pilot.press("space", "space", "j", "e")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        assert "Correct label of 2 demonstrations" in text_of(app)
        await pilot.press(*"blue", "enter")
        await until(pilot, lambda: relabelled(made))
        await settled(pilot)
        assert [(each.id, each.output) for each in relabelled(made)] == [("d0", "blue"), ("d1", "blue")]
        assert history(made)[0].targets == ("d0", "d1") and not tab.model.marks.count
        await pilot.press("G", "space", "g", "e")  # one that is not under the cursor
        await until(pilot, lambda: isinstance(app.screen, Pick))
        await pilot.press(*"green", "enter")
        await until(pilot, lambda: len(relabelled(made)) == 3)
        assert relabelled(made)[2].id == "d23"

    session(made.path, script)


def test_an_empty_correction_says_that_it_is_none(tmp_path: Path) -> None:
    made = make(tmp_path, labels=False, tab="demos")

    async def script(app: ReviewApp, pilot: Any) -> None:
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, Pick) and app.screen.query_one(Field).value)
        await pilot.press("end", "ctrl+u", "enter")
        await until(pilot, lambda: "may not be empty" in notified(app))
        await settled(pilot)
        await pilot.press("a")
        await until(pilot, lambda: app.tab.model.marks.count == 24)  # type: ignore[union-attr]
        await pilot.press("e")
        await until(pilot, lambda: "one by one" in notified(app))

    session(made.path, script)
    assert not history(made)


def test_decisions_made_elsewhere_meanwhile_are_respected(tmp_path: Path) -> None:
    made = make(tmp_path)

    async def script(app: ReviewApp, pilot: Any) -> None:
        tab: Any = app.tab
        name = shots(tab)[0]
        decide(made, "prune", "demonstration", [name])
        tab.action_prune_row()
        await until(pilot, lambda: "pruned already" in notified(app) or name not in shots(tab))

    session(made.path, script)
    assert len(history(made)) == 1


def test_any_row_of_demos_is_corrected_also_a_pruned_one_but_no_query(tmp_path: Path) -> None:
    made = make(tmp_path, tab="demos")
    decide(made, "prune", "demonstration", ["d1"])

    async def script(app: ReviewApp, pilot: Any) -> None:
        tab: Any = app.tab
        await pilot.press("j", "e", *"blue", "enter")
        await until(pilot, lambda: relabelled(made))
        assert [(each.id, each.output) for each in relabelled(made)] == [("d1", "blue")]
        assert history(made)[0].reason == "in review"
        await settled(pilot)
        await pilot.press("g")
        await settled(pilot)
        app.look_again = lambda: None  # type: ignore[method-assign]  # the list is drawn, and its file changes
        pool = tmp_path / "pool.jsonl"
        pool.write_text(pool.read_text().replace("card number0", "another text"))
        index_pool(made, IndexPlan(paths=(str(pool),)))
        await pilot.press("x")
        await until(pilot, lambda: "'d0' is no longer in its file as it is shown" in notified(app))
        tab.model.filter_by(split="validation")
        tab.search()
        await settled(pilot)
        await pilot.press("e")
        assert not isinstance(app.screen, Pick)

    session(made.path, script)
