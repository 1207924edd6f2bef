"""The tab Preview: two selections side by side, the LLM asked only after its cost was seen, stability, decisions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from factories.copies import indexed, lines
from factories.reviewing import cells_of, is_safe, lines_of, notified, session, text_of, until
from factories.servers import Server, answer_to
from factories.waiting import settled as at_rest
from icl_curate.engine.http import trust
from icl_curate.engine.llm.cost import PROBE_CALLS
from icl_curate.engine.pool.records import Query
from icl_curate.engine.select.selector import Selector
from icl_curate.engine.store.demonstrations import queries
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs.dialog import Confirm, Pick
from icl_curate.tui.tabs.preview.model import Side
from icl_curate.tui.tabs.preview.tab import PreviewTab
from icl_curate.tui.themes import named_styles
from icl_curate.tui.widgets.reader import Reader
from rich.console import Console
from rich.theme import Theme
from textual.pilot import Pilot
from textual.widgets import Input

HOSTILE = "label [/foo] [bold]\x1b[31mred\x1b]0;title\x07 \x9b2J \u202eturned\u2066 日本語 e\u0301"
"""Short, so that inputs do not count as repeats of each other for its sake."""

SHOTS = 4


def index(folder: Path, server: Server | None = None) -> Workspace:
    rows = [
        {"id": f"d{i} {HOSTILE}", "input": f"word{i} word{i + 1} card {HOSTILE}", "output": f"o{i}", "source": HOSTILE}
        for i in range(30)
    ]
    asked = [{"id": f"q{i}", "input": f"word{i} word{i + 2} {HOSTILE}", "output": f"o{i}"} for i in range(8)]
    asked[3]["input"] += " x" * 490_000
    workspace = indexed(folder / "w", pool=lines(rows), validation=lines(asked))
    config = [f"k = {SHOTS}", 'method = "bm25"', "price_in = 1000.0", "price_out = 1000.0"]
    if server:
        config += ['llm = "openai:stub"', f'base_url = "{server.url}"']
        trust.confirm(workspace.path, server.url)
    (workspace.path / "config.toml").write_text("\n".join(config))
    (workspace.path / "review.json").write_text(
        json.dumps({"tab": "preview", "tabs": {"preview": {"methods": ["bm25", "random"]}}})
    )
    return workspace


def ids(side: Side) -> list[str]:
    return [shot.id for shot in side.chosen.shots] if side.chosen else []


def settled(tab: PreviewTab, query: str) -> bool:
    """Both sides show what ``query`` gets."""
    return all(side.chosen and side.chosen.seen and side.chosen.seen.query.input == query for side in tab.model.sides)


def laid_out(app: ReviewApp, selector: str) -> str:
    """What a reader holds, laid out wide."""
    console = Console(width=200, color_system=None, theme=Theme(named_styles(app.theme_variables)))
    shown = app.screen.query_one(selector, Reader).content
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


def test_selections_are_those_of_the_selector_for_typed_and_indexed_queries(tmp_path: Path) -> None:
    workspace = index(tmp_path)
    asked = queries(workspace, "validation")

    def wanted(query: Query | str, method: str, k: int = SHOTS) -> list[str]:
        return [shot.demonstration.id for shot in Selector(workspace, method, k).select(query)]

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(PreviewTab)
        await until(pilot, lambda: settled(tab, asked[0].input))
        for query in (asked[1], asked[2], asked[3]):  # the last one holds a megabyte
            await pilot.press("n")
            await until(pilot, lambda query=query: settled(tab, query.input))
            assert ids(tab.model.sides[0]) == wanted(query, "bm25")
            assert ids(tab.model.sides[1]) == wanted(query, "random")
            await pilot.pause()
            assert is_safe(text_of(app))
        await pilot.press("plus", "plus")
        await until(pilot, lambda: len(ids(tab.model.sides[1])) == SHOTS + 2)
        assert ids(tab.model.sides[0]) == wanted(asked[3], "bm25", SHOTS + 2)
        await pilot.press("N", "minus")
        await until(pilot, lambda: settled(tab, asked[2].input) and len(ids(tab.model.sides[0])) == SHOTS + 1)
        await pilot.press("slash", *"word7 card")
        assert tab.query_one("#query", Input).value == "word7 card"  # letters are letters while a text is typed
        await until(pilot, lambda: settled(tab, "word7 card"))
        assert ids(tab.model.sides[0]) == wanted("word7 card", "bm25", SHOTS + 1)
        await pilot.press("enter")
        assert app.focused is tab.side(0).table
        why = laid_out(app, "#why")
        seen = tab.model.sides[0].chosen
        assert seen is not None
        assert seen.seen is not None
        for word, added in seen.seen.words[0]:
            assert f"{word}" in why
            assert f"{added:+.3f}" in why
        assert sum(added for _, added in seen.seen.words[0]) == pytest.approx(seen.seen.shots[0].score)
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        await pilot.press(*"word5", "enter")
        await until(pilot, lambda: tab.model.query and tab.model.query.id in ("q3", "q5"))
        assert tab.model.typed == ""

    session(workspace.path, script)


def test_a_template_of_the_folder_writes_the_prompt_that_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = index(tmp_path)
    monkeypatch.chdir(tmp_path)
    own = "{% for shot in shots %}* {{ shot.answer }}\n{% endfor %}<q>{{ query.input }}</q>"
    (tmp_path / "mine.jinja").write_text(own)
    (tmp_path / "odd.j2").write_text("{{ query.input")

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(PreviewTab)
        await until(pilot, lambda: ids(tab.model.sides[1]))
        await pilot.press("T")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        await pilot.press(*"odd", "enter")
        await until(pilot, lambda: "the template fails" in notified(app))
        await pilot.press("T", *"mine", "enter")
        await until(pilot, lambda: tab.model.settings.template == "mine.jinja" and ids(tab.model.sides[0]))
        await until(pilot, lambda: "by mine.jinja" in text_of(app))
        sent = tab.model.side.chosen
        assert sent and sent.prompt and sent.prompt.messages[0].content.startswith("* o")
        assert sent.prompt.messages[0].content.endswith("</q>")

    session(workspace.path, script)


def test_shots_of_both_sides_name_each_other_and_what_cannot_select_says_why(tmp_path: Path) -> None:
    workspace = index(tmp_path)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(PreviewTab)
        await until(pilot, lambda: ids(tab.model.sides[1]))
        await pilot.press("l", "m")
        assert isinstance(app.screen, Pick)
        await pilot.press(*"dense", "enter")
        await until(pilot, lambda: tab.model.sides[1].chosen and tab.model.sides[1].chosen.error)
        text = text_of(app)
        assert "have no vectors" in text
        assert any("$ icl-curate index --encoder" in line and "y copies" not in line for line in lines_of(app))
        assert "y copies the command" in text, "in the place of the demonstrations"
        await pilot.press("y")
        assert app.clipboard.startswith("icl-curate index --encoder")
        assert len(ids(tab.model.sides[0])) == SHOTS
        await pilot.press("m", *"bm25", "enter")
        await until(pilot, lambda: ids(tab.model.sides[1]) == ids(tab.model.sides[0]))
        for place in range(SHOTS):
            assert f"#{place + 1}" in map(str, cells_of(tab.side(0).table, place))
        await pilot.press("m", *"zero", "enter")
        await until(pilot, lambda: tab.model.sides[1].method == "zero" and tab.model.sides[1].chosen)
        assert "no demonstrations: zero-shot" in text_of(app)
        await pilot.press("t")
        await until(pilot, lambda: "no demonstration to leave out" in notified(app))

    session(workspace.path, script)


def test_who_stops_the_llm_is_told_no_error_and_no_command(tmp_path: Path, server: Server) -> None:
    """There is no command on the screen to run again."""
    workspace = index(tmp_path, server)
    server.held = "card"  # stands in each shot, and in no prompt of the probe

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(PreviewTab)
        await until(pilot, lambda: ids(tab.model.sides[1]))
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await until(pilot, lambda: any("card" in call.text for call in server.calls))
        await pilot.press("escape")
        server.let_go()
        await until(pilot, lambda: "stopped" in notified(app))
        assert "command" not in notified(app) and not any(one.severity == "error" for one in app.notices)

    session(workspace.path, script)


def test_the_llm_is_asked_once_its_cost_was_agreed_to(tmp_path: Path, server: Server) -> None:
    workspace = index(tmp_path, server)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(PreviewTab)
        await until(pilot, lambda: ids(tab.model.sides[1]))
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, Confirm) and "cost" in text_of(app))
        text = text_of(app)
        assert "Ask openai:stub?" in text
        assert f"to ask: {2 + PROBE_CALLS}" in text
        assert "cost: unknown" in text  # prices of the workspace's own file count for nothing
        await pilot.press("n")
        assert not server.calls
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await until(pilot, lambda: all(side.chosen and side.chosen.answered for side in tab.model.sides))
        for side in tab.model.sides:
            assert side.chosen is not None
            assert side.chosen.seen is not None
            assert side.chosen.answered is not None
            assert side.chosen.answered.whole.answer is not None
            sent = "\n".join(message.content for message in side.chosen.seen.prompt.messages)
            assert side.chosen.answered.whole.answer.text == answer_to(sent)
        calls = len(server.calls)
        await pilot.press("a")  # known by now: nothing to pay, nothing to confirm
        await pilot.pause(0.5)
        assert not isinstance(app.screen, Confirm)
        assert len(server.calls) == calls
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, Confirm) and f"to ask: {SHOTS + 1}" in text_of(app))
        await pilot.press("y")
        answered = lambda: tab.model.sides[0].chosen.answered  # type: ignore[union-attr]  # noqa: E731
        await until(pilot, lambda: answered().others)
        assert len(server.calls) == calls + SHOTS + 1
        found = answered()
        texts = {one.answer.text for one in (found.whole, *found.others)}
        assert len(texts) == SHOTS + 2  # the server answers every prompt in other words
        assert found.kept == 0
        assert f"0 of {SHOTS + 1}" in laid_out(app, "#more")
        assert laid_out(app, "#more").count("changes the answer") == SHOTS + 1
        await pilot.press("p")
        assert "the exact prompt" in laid_out(app, "#more")
        assert is_safe(laid_out(app, "#more"))
        await pilot.press("y")
        copied = json.loads(app.clipboard)
        assert [message["content"] for message in copied] == [m.content for m in found.whole.prompt.messages]
        await pilot.press("q")

    session(workspace.path, script)

    async def again(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(PreviewTab)
        calls = len(server.calls)
        await until(pilot, lambda: tab.model.sides[0].chosen and tab.model.sides[0].chosen.answered)
        chosen = tab.model.sides[0].chosen
        assert chosen is not None
        assert chosen.answered is not None
        assert len(chosen.answered.others) == SHOTS + 1  # earlier answers are shown without being asked for
        assert tab.model.pane == "prompt"
        assert len(server.calls) == calls

    session(workspace.path, again)


def test_what_is_asked_for_while_a_selection_is_under_way_is_asked_of_that_selection(
    tmp_path: Path, server: Server
) -> None:
    workspace = index(tmp_path, server)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(PreviewTab)
        await until(pilot, lambda: ids(tab.model.sides[1]))
        tab.action_step(1)
        tab.action_ask()  # before the second query's demonstrations are there
        await until(pilot, lambda: isinstance(app.screen, Confirm) and "cost" in text_of(app))
        await pilot.press("y")
        await until(pilot, lambda: all(side.chosen and side.chosen.answered for side in tab.model.sides))
        assert len(server.asked("word1 word3")) == 2
        assert not server.asked("word0 word2")
        for side in tab.model.sides:
            assert side.chosen is not None
            assert side.chosen.answered is not None
            assert side.chosen.answered.whole.prompt.query.id == "q1"

    session(workspace.path, script)


def test_an_llm_that_fails_is_told_and_may_be_asked_again(tmp_path: Path, server: Server) -> None:
    workspace = index(tmp_path, server)
    server.api_key = "another"

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(PreviewTab)
        await until(pilot, lambda: ids(tab.model.sides[1]))
        for _ in range(2):
            app.notices.clear()
            await pilot.press("a")
            await until(pilot, lambda: isinstance(app.screen, Confirm))
            await pilot.press("y")
            await until(pilot, lambda: "key" in notified(app).lower())
        assert "shots" in text_of(app)

    session(workspace.path, script)


def test_pruning_here_selects_anew_and_undo_brings_it_back(tmp_path: Path) -> None:
    workspace = index(tmp_path)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(PreviewTab)
        await until(pilot, lambda: ids(tab.model.sides[0]))
        before = ids(tab.model.sides[0])
        await pilot.press("j", "x")
        await until(pilot, lambda: "prune" in notified(app))
        await until(pilot, lambda: ids(tab.model.sides[0]) != before and len(ids(tab.model.sides[0])) == SHOTS)
        assert before[1] not in ids(tab.model.sides[0])
        await pilot.press("u")
        await until(pilot, lambda: ids(tab.model.sides[0]) == before)

    session(workspace.path, script)


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
def test_small_terminals_show_shots_and_reasons(tmp_path: Path, size: tuple[int, int]) -> None:
    workspace = index(tmp_path)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(PreviewTab)
        await until(pilot, lambda: ids(tab.model.sides[1]))
        await pilot.pause()
        assert "bm25" in text_of(app)
        assert "o0" in text_of(app)
        await pilot.press("l")
        await at_rest(pilot)
        assert "random" in text_of(app)
        await pilot.press("d")
        await until(pilot, lambda: "word" in laid_out(app, "#preview Detail") and "input" in text_of(app))
        await at_rest(pilot)  # on a busy machine the selection is still under way, and with it the prompt
        await pilot.press("p")
        await until(pilot, lambda: "exact prompt" in text_of(app))
        assert is_safe(text_of(app))
        await pilot.press("escape")
        await until(pilot, lambda: "exact prompt" not in text_of(app))
        assert isinstance(app.focused, type(tab.side(1).table))

    session(workspace.path, script, size)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 20)])
def test_of_a_long_query_the_wanted_answer_stays(tmp_path: Path, size: tuple[int, int]) -> None:
    workspace = index(tmp_path)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(PreviewTab)
        for _ in range(3):
            await pilot.press("n")
            await at_rest(pilot)
        await until(pilot, lambda: tab.model.query and settled(tab, tab.model.query.input))
        assert any(line.rstrip().endswith("…  → o3") for line in lines_of(app)), text_of(app)
        await pilot.resize_terminal(80, 24)
        await at_rest(pilot)
        assert any(line.rstrip().endswith("…  → o3") for line in lines_of(app)), text_of(app)

    session(workspace.path, script, size)


def test_an_empty_pool_says_what_to_run(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w")
    (workspace.path / "review.json").write_text(json.dumps({"tab": "preview"}))

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(PreviewTab)
        await until(pilot, lambda: tab.nothing)
        assert tab.to_copy().startswith("icl-curate index")

    session(workspace.path, script)


def test_a_server_that_the_workspace_alone_names_is_not_asked_and_the_cost_says_where_prompts_go(
    tmp_path: Path, server: Server
) -> None:
    workspace = index(tmp_path, server)
    trust.forget(workspace.path, server.url)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = app.query_one(PreviewTab)
        await until(pilot, lambda: tab.model.sides[0].chosen)
        await pilot.press("a")
        await until(pilot, lambda: f"llm trust {server.url}" in notified(app))
        assert not isinstance(app.screen, Confirm)
        assert not server.calls
        trust.confirm(workspace.path, server.url)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert f"prompts go to: stub at {server.url}" in text_of(app)
        assert not server.calls
        await pilot.press("n")

    session(workspace.path, script)
