"""What the tab Preview knows, without an app: which query, what is selected and asked next, what comes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.llm.types import Answer
from icl_curate.engine.pool.records import Query
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.select.session import SessionCache
from icl_curate.engine.select.stability import PromptAnswer, Stability
from icl_curate.engine.store.decisions import decide, undo
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.model import Empty
from icl_curate.tui.tabs.preview import rows as texts
from icl_curate.tui.tabs.preview.model import MOST_SHOTS, MethodSelection, PreviewData, PreviewModel, read
from icl_curate.tui.tabs.preview.rows import answer_line, prompt
from rich.console import Console

SETTINGS = Settings(method="bm25", k=3)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("preview")
    pool, validation = folder / "pool.jsonl", folder / "validation.jsonl"
    rows = [{"id": f"d{i}", "input": f"word{i} word{i + 1} card", "output": f"o{i}"} for i in range(8)]
    asked = [{"id": f"q{i}", "input": f"word{i} word{i + 2}", "output": f"o{i}"} for i in range(3)]
    for path, lines in ((pool, rows), (validation, asked)):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = Workspace.create(folder / "w")
    index_pool(found, IndexPlan(paths=(str(pool),), validation=(str(validation),), encoder=None))
    return found


def found(queries: int = 3, trained: frozenset[str] = frozenset()) -> PreviewData:
    return PreviewData((1,), SETTINGS, trained, np.arange(100, 100 + queries), {}, ())


def ready(queries: int = 3) -> PreviewModel:
    model = PreviewModel()
    assert model.take(found(queries))
    return model


def selected(workspace: Workspace) -> PreviewModel:
    """A model with both selections of the first query."""
    model, state = PreviewModel(), read(workspace, SETTINGS)
    assert isinstance(state, PreviewData)
    model.take(state)
    request = model.select()
    assert request is not None
    assert model.selected(*request.select(workspace, SessionCache())) is None
    return model


def answer(chosen: MethodSelection, text: str, variants: bool) -> Stability:
    assert chosen.prompt is not None
    whole = PromptAnswer(chosen.prompt, Answer(text))
    return Stability(tuple(chosen.shots), whole, (whole,) * (len(chosen.shots) if variants else 0))


def test_methods_are_those_set_trained_and_usual_and_no_method_twice() -> None:
    assert ready().methods == ["bm25", "dense"]
    model = PreviewModel()
    model.take(found(trained=frozenset({"ranker"})))
    assert model.methods == ["bm25", "ranker"]
    kept = PreviewModel()
    kept.recall({"methods": ["gone", "bm25"]})
    kept.take(found())
    assert kept.methods == ["dense", "bm25"]


def test_selections_are_made_anew_only_where_they_may_differ() -> None:
    model = ready()
    assert not model.take(found())
    assert model.take(replace(found(), fingerprint=(2,)))
    assert model.take(replace(found(), fingerprint=(2,), settings=replace(SETTINGS, k=9)))
    assert model.take(replace(found(), fingerprint=(2,), trained=frozenset({"ranker"})))


def test_steps_go_round_and_leave_what_was_typed() -> None:
    model = ready()
    assert model.step(-1)
    assert model.place == 2
    assert model.step(1)
    assert model.place == 0
    model.want_place(1)
    assert not model.type_query("  ")
    assert model.type_query("my card")
    assert not model.type_query("my card ")
    request = model.select()
    assert request is not None
    assert request.typed == "my card"
    assert model.step(1)
    assert (model.place, model.typed) == (0, "")
    none = ready(queries=0)
    assert not none.step(1)
    assert none.select() is None
    assert not none.selecting


def test_another_tab_may_want_a_row_before_or_after_the_queries_are_known() -> None:
    before = PreviewModel()
    before.want_row(102)
    before.take(found())
    assert before.place == 2
    after = ready()
    after.type_query("typed")
    after.want_row(101)
    request = after.select()
    assert request is not None
    assert (request.typed, request.row) == ("", 101)


def test_shots_stay_within_their_bounds_and_outlast_the_session() -> None:
    model = ready()
    for _ in range(5):
        model.set_shots(-1)
    assert model.settings.k == 0
    for _ in range(MOST_SHOTS + 5):
        model.set_shots(1)
    assert model.settings.k == MOST_SHOTS
    model.want_place(2)
    again = PreviewModel()
    again.recall(json.loads(json.dumps(model.remember())))
    assert again.shots == MOST_SHOTS
    again.take(found())
    assert again.remember() == model.remember()
    odd = PreviewModel()
    odd.recall({"shots": 10_000, "row": "x", "pane": "?", "methods": 3})
    assert (odd.shots, odd.pane, odd.methods) == (None, "why", ["", ""])


def test_another_method_voids_its_sides_selection_alone(workspace: Workspace) -> None:
    model = selected(workspace)
    assert [shot.id for shot in model.sides[0].chosen.shots] == ["d0", "d1", "d2"]  # type: ignore[union-attr]
    assert model.sides[1].chosen is not None
    assert isinstance(model.sides[1].chosen.error, UsageError)  # there are no vectors
    model.methods[1] = "random"
    request = model.select()
    assert request is not None
    assert model.selecting
    assert model.sides[0].chosen is not None
    assert (model.sides[1].method, model.sides[1].chosen) == ("random", None)
    model.selected(*request.select(workspace, SessionCache()))
    assert model.sides[0].settled
    assert not model.sides[1].settled  # its first selection: indexes may have been loaded for it
    assert len(model.sides[1].chosen.shots) == 3  # type: ignore[union-attr]


def test_what_is_asked_while_selecting_is_asked_of_what_comes(workspace: Workspace) -> None:
    model = selected(workspace)
    old = model.sides[0].chosen
    model.step(1)
    request = model.select()
    assert request is not None
    assert model.ask([0, 1], variants=False) is None
    asked = model.selected(*request.select(workspace, SessionCache()))
    assert asked is not None
    assert asked.sides == (0,)  # nothing was selected on the other side
    assert asked.chosen[0] is model.sides[0].chosen is not old
    assert model.select() is not None
    model.ask([0], variants=True)
    model.stop_selecting()
    assert model.selected(Query("x"), [asked.chosen[0], asked.chosen[0]]) is None  # a failed selection takes it along


def test_answers_go_where_their_selection_still_stands(workspace: Workspace) -> None:
    model = selected(workspace)
    asked = model.ask([0, 1], variants=False)
    assert asked is not None
    [chosen] = asked.chosen
    model.asking(asked)
    assert model.sides[0].doing.startswith("asking")
    assert model.answered(asked, [replace(answer(chosen, "a", variants=True), dropped=2, limit=400)]) == [
        "2 of the lowest-ranked demonstrations did not fit into 400 tokens"
    ]
    shown = model.sides[0].chosen
    assert shown is not None and shown.answered is not None
    assert len(shown.answered.without) == 3
    assert model.ask_stability() is None  # known already
    again = model.ask([0], variants=False)
    assert again is not None
    model.answered(again, [answer(shown, "a", variants=False)])
    assert len(model.sides[0].chosen.answered.without) == 3  # type: ignore[union-attr]
    late = model.ask([0], variants=False)
    assert late is not None
    request = model.select()
    assert request is not None
    model.selected(*request.select(workspace, SessionCache()))
    model.answered(late, [answer(shown, "late", variants=False)])
    assert model.sides[0].chosen.answered is None  # type: ignore[union-attr]


def test_stability_needs_a_demonstration_to_leave_out(workspace: Workspace) -> None:
    model = selected(workspace)
    assert not model.nothing_to_leave_out()
    asked = model.ask_stability()
    assert asked is not None
    assert asked.variants
    model.methods[0] = "zero"
    request = model.select()
    assert request is not None
    model.selected(*request.select(workspace, SessionCache()))
    assert model.nothing_to_leave_out()
    assert model.shot(0) is None
    assert model.copied(0) == "word0 word2"


def test_what_is_copied_is_what_is_looked_at(workspace: Workspace) -> None:
    model = selected(workspace)
    assert json.loads(model.copied(1))["id"] == "d1"
    model.pane = "prompt"
    assert "word0 word2" in json.loads(model.copied(1))[-1]["content"]
    model.active = 1
    assert model.copied(0).startswith("icl-curate index --encoder"), "what makes a selection possible"


def test_an_empty_pool_says_what_to_run(tmp_path: Path) -> None:
    state = read(Workspace.create(tmp_path), SETTINGS)
    assert isinstance(state, Empty)
    assert state.command.startswith("icl-curate index")


def test_a_pool_of_which_every_row_is_pruned_says_how_they_come_back(workspace: Workspace) -> None:
    with workspace.read() as con:
        names = [name for (name,) in con.execute("SELECT id FROM active").fetchall()]
    decide(workspace, "prune", "demonstration", names)
    state = read(workspace, SETTINGS)
    assert isinstance(state, Empty) and state.command == "icl-curate undo"
    with pytest.raises(UsageError) as caught:
        PoolView(workspace, SETTINGS).rows  # noqa: B018
    assert caught.value.fix.startswith("icl-curate undo")
    undo(workspace)


def test_a_reply_is_shown_with_what_was_read_of_it_and_by_which_rule(workspace: Workspace) -> None:
    chosen = selected(workspace).side.chosen
    assert chosen is not None and chosen.prompt is not None
    said = Answer("o1", how="answer line", reply="\x1b[1mI think.\nAnswer: o1")
    whole = PromptAnswer(chosen.prompt, said, right=True, value=0.75)
    shown = str(prompt(chosen.prompt, whole))
    assert shown.endswith("reply\n␛[1mI think.\nAnswer: o1\n\nread\no1 0.75  answer line")
    line = str(answer_line(Stability(tuple(chosen.shots), whole), "openai:m"))
    assert "o1 0.75" in line and line.endswith("read: answer line")
    right = replace(whole, value=1.0, answer=replace(said, how="whole"))
    assert str(answer_line(Stability((), right), "openai:m")).endswith("o1 ✓")
    assert "reply" not in str(prompt(chosen.prompt))
    assert "only here" not in str(prompt(chosen.prompt, beside=chosen.prompt))
    *same, last = chosen.prompt.messages
    told = str(prompt(chosen.prompt, beside=replace(chosen.prompt, messages=tuple(same))))
    assert told.count("only here") == 1 and f"{last.role}  only here" in told


@pytest.mark.parametrize("width", [48, 56, 60, 65])
def test_a_text_beside_bars_that_is_cut_says_so(width: int) -> None:
    console, about = Console(width=width, color_system=None), "embeddings of query and input"
    with console.capture() as drawn:
        console.print(texts._bars([("cosine", 0.665, 1.0, about)]))
    (line,) = drawn.get().splitlines()
    assert "cosine  +0.665" in line and (line.endswith(about) if width == 65 else line.endswith("…"))
