"""`report`: its figures are those of the store, both pages say the same, and no text of a pool acts in either."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer.main
from factories.commands import Run
from factories.groups_world import make_pool
from factories.gullible_world import PRICED, Gullible, make_gullible_world
from factories.hostile import got_through
from factories.hostile import queries as hostile_queries
from factories.hostile import rows as hostile_rows
from factories.servers import Server
from icl_curate import Pool
from icl_curate.cli import app
from icl_curate.engine.baselines.datamodel import DatamodelPlan
from icl_curate.engine.checks.ask import RowPlan
from icl_curate.engine.curate.curation import Curation, CurationPlan
from icl_curate.engine.curate.fixed import FixedPlan
from icl_curate.engine.curate.results import KIND, TuneReport
from icl_curate.engine.curate.tune import Tuning, TuningPlan
from icl_curate.engine.evaluate.compare import Evaluation, EvaluationPlan
from icl_curate.engine.evaluate.results import EvaluationReport
from icl_curate.engine.export.corpus import ExportPlan, export
from icl_curate.engine.http import trust
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.papers.calibrate.lora import Recipe
from icl_curate.engine.papers.calibrate.round_runner import CalibrationPlan
from icl_curate.engine.papers.ranker.train import RankerPlan
from icl_curate.engine.papers.topics.train import TopicPlan
from icl_curate.engine.report import gather as gathering
from icl_curate.engine.report.gather import SHOWN, gather
from icl_curate.engine.report.results import Interval, PoolReport
from icl_curate.engine.store import runs
from icl_curate.engine.store.browse import pruned_rows
from icl_curate.engine.store.decisions import decide, history, latest_decisions, redo, relabel, revise, undo
from icl_curate.engine.store.demonstrations import find
from icl_curate.engine.store.overview import overview
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.trials import source_summaries
from icl_curate.engine.store.workspace import Workspace
from icl_curate.engine.trials.ranker import DEFAULT_INPUTS
from icl_curate.engine.trials.sources import SourcePlan
from icl_curate.render.report.html import POLICY, html
from icl_curate.render.report.markdown import markdown
from icl_curate.render.report.page import document
from markdown_it import MarkdownIt

SETTINGS = replace(PRICED, llm="gullible")
VOID = {"meta", "rect", "path", "circle"}
"""Elements without an end, those of SVG because they end themselves."""

ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "p", "nav", "ul", "li", "a", "main",
    "section", "div", "table", "caption", "thead", "tbody", "tr", "th", "td", "bdi", "span", "code", "figure",
    "figcaption", "svg", "desc", "text", "rect", "path", "circle",
}  # fmt: skip

ACTING = (
    "<script>alert(1)</script>", '"><img src=http://evil.example/x onerror=alert(1)>', "</style></svg></table><iframe>",
    "a | b \\| <b>c</b> | d", "`code` ``more`` <i>", "[link](http://evil.example) ![picture](http://evil.example/y)",
    "<!-- comment", "&lt;b&gt; &amp; &#60;", "# heading", "- point", "1. first", "===", "www.evil.example", "@someone",
    "http://evil.example :boom: $x$ ~~gone~~ <http://evil.example>", "\\", "**bold** _slanted_", "x" * 1_000_000,
)  # fmt: skip
"""Texts that would be markup in one of the formats."""


class Page(HTMLParser):
    """Reads a page strictly: every element is known and closed in order, and none asks for anything."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: Counter[str] = Counter()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.metas: list[dict[str, str | None]] = []
        self.tables: list[list[list[str]]] = []
        self.scopes: Counter[str] = Counter()
        self.names: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        assert tag in ALLOWED, tag
        assert not {"src", "srcset", "style", "action", "data", "xlink:href"} & told.keys(), told
        assert not any(name.startswith("on") for name in told), told
        self.seen[tag] += 1
        self.ids += [told["id"] or ""] if "id" in told else []
        self.links += [told["href"] or ""] if "href" in told else []
        self.names += (told.get("aria-labelledby") or "").split()
        if tag == "meta":
            self.metas.append(told)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("th", "td"):
            self.tables[-1][-1].append("")
            assert (tag == "th") == ("scope" in told)
            self.scopes[told.get("scope") or ""] += 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)
        if self.open[-1:] and {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data

    @property
    def text(self) -> str:
        return "".join(self.texts)


def _markdown_tables(text: str) -> list[list[list[str]]]:
    """The cells of all tables, as a reader of Markdown shows them."""
    tables: list[list[list[str]]] = []
    inside = False
    for token in MarkdownIt("gfm-like", {"linkify": False}).parse(text):
        assert token.type not in ("html_block", "fence", "code_block"), token.content[:200]
        assert token.type != "heading_open" or token.tag in ("h1", "h2")
        for child in token.children or ():
            assert child.type not in ("html_inline", "link_open", "image", "s_open"), token.content[:200]
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            tables[-1].append([])
        elif token.type in ("td_open", "th_open"):
            inside = True
        elif token.type in ("td_close", "th_close"):
            inside = False
        elif token.type == "inline" and inside:
            tables[-1][-1].append("".join(child.content for child in token.children or ()))
    return tables


def _same(cells: list[list[list[str]]]) -> list[list[list[str]]]:
    """Without what only the layout of a format changes: spaces at the ends, and more than one."""
    return [[[" ".join(cell.split()) for cell in row] for row in table] for table in cells]


def _evaluated(workspace: Workspace) -> EvaluationReport:
    plan = EvaluationPlan(methods=("bm25",), split="validation")
    return Evaluation.prepare(LLMClient(workspace, Gullible(), SETTINGS), plan).ask(Budget())


@pytest.fixture(scope="module")
def _curated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluated, curated, with outputs corrected and decisions undone, and evaluated again."""
    workspace = make_gullible_world(tmp_path_factory.mktemp("curated") / "w")
    _evaluated(workspace)
    Curation.prepare(LLMClient(workspace, Gullible(), SETTINGS), CurationPlan(max_calls=600)).ask(Budget(600))
    relabel(workspace, {"p-0": "yes 1000", "p-2": "yes 1001"}, ["check: label, first", "second"], "ada")
    decide(workspace, "prune", "demonstration", ["p-4"], "to be undone")
    undo(workspace)
    reasons = [f"check: outlier, distance {i}" for i in range(8)]
    decide(workspace, "prune", "demonstration", [f"p-{2 * i + 10}" for i in range(8)], reasons, "ada")
    _evaluated(workspace)
    return workspace.path


@pytest.fixture
def curated(_curated: Path, tmp_path: Path) -> Workspace:
    shutil.copytree(_curated, tmp_path / "w")
    return Workspace.open(tmp_path / "w")


@pytest.fixture(scope="module")
def told(_curated: Path) -> PoolReport:
    return gather(Workspace.open(_curated), SETTINGS, "A pool")


# figures


def test_counts_sources_and_costs_are_those_of_the_store(told: PoolReport, curated: Workspace) -> None:
    found = overview(curated)
    assert (told.counts.pool, told.counts.active, told.counts.pruned) == (found.pool, found.active, found.pruned)
    assert (told.counts.validation, told.counts.corrected) == (found.validation, 2)
    assert [(one.source, one.before, one.after, one.weight, one.reliability) for one in told.sources] == [
        (one.source, one.demonstrations, one.active, one.weight, one.reliability) for one in source_summaries(curated)
    ]
    (cost,) = told.costs
    totals = found.calls["gullible"]
    assert (cost.calls, cost.tokens_in, cost.tokens_out) == (totals.calls, totals.tokens_in, totals.tokens_out)
    assert cost.dollars == pytest.approx((totals.tokens_in + totals.tokens_out) / 1e6)
    assert (cost.local, cost.stand_in) == (False, False)


def test_an_llm_behind_a_server_has_the_price_of_the_settings_that_name_both_or_else_of_its_run(
    tmp_path: Path, run: Run
) -> None:
    workspace = make_gullible_world(tmp_path / "w")
    with Server() as server:
        there = ("--llm", "openai:stub", "--base-url", server.url, "--price-in", 2, "--price-out", 4)
        run("evaluate", "-m", "zero", "--limit", 3, "--split", "validation", "-w", workspace.path, *there)
    (cost,) = gather(workspace, Settings()).costs
    assert cost.llm == f"openai:stub at {server.url}"
    assert cost.dollars == pytest.approx((2 * cost.tokens_in + 4 * cost.tokens_out) / 1e6)
    dearer = replace(PRICED, llm="openai:stub", base_url=server.url, price_in=5.0)
    assert [one.price_in for one in gather(workspace, dearer).costs] == [5.0]
    elsewhere = replace(dearer, base_url="http://127.0.0.1:1/v1")
    assert [one.price_in for one in gather(workspace, elsewhere).costs] == [2.0]
    with workspace.write() as con:
        con.execute("UPDATE llm_calls SET llm = 'openai:stub at /v1'")
    assert [one.price_in for one in gather(workspace, dearer).costs] == [None], "the end of an address is another one"


def test_runs_as_commands_ask_the_server_that_was_asked_in_the_workspace_of_the_report(
    tmp_path: Path, run: Run
) -> None:
    workspace = make_gullible_world(tmp_path / "w")
    with Server() as server:
        there = ("--llm", "openai:stub", "--base-url", server.url, "-w", workspace.path)
        run("evaluate", "-m", "zero", "--limit", 3, "--split", "validation", *there)
        run("train", "rows", "--limit", 3, "--ranking", "bm25", *there)
        run("curate", "--max-calls", 40, "-m", "bm25", "--yes", *there)

    def asked() -> dict[str, str]:
        steps = gather(workspace, Settings()).reproduction.steps
        return {step.kind: step.command.partition("openai:stub ")[2] for step in steps}

    assert asked() == dict.fromkeys(("evaluate", "train-rows", "curate", "tune"), "--base-url URL") | {
        "evaluate": "--limit 3 --base-url URL"
    }
    trust.confirm(workspace.path, server.url)
    assert all(command.endswith(f"--base-url {server.url}") for command in asked().values())
    run("report", tmp_path / "out.md", "-w", workspace.path)
    Pool(workspace.path).report(tmp_path / "other.md")
    for page in ("out.md", "other.md"):
        text = (tmp_path / page).read_text()
        assert "icl-curate evaluate -w " in text and "icl-curate curate -w " in text and "--yes" not in text


def test_measured_figures_are_those_of_the_stored_runs(told: PoolReport, curated: Workspace) -> None:
    tuned = [TuneReport.from_json(run.summary) for run in reversed(runs.runs(curated, KIND))]
    assert [one.run for one in told.confirmed] == [one.run for one in tuned if one.confirmed]
    for one, stored in zip(told.confirmed, [each for each in tuned if each.confirmed], strict=True):
        measured = stored.confirmed
        assert measured is not None
        assert (one.before.value, one.after.value) == (measured.before, measured.after)
        assert (one.gain.value, one.gain.low, one.gain.high) == (measured.gain, measured.low, measured.high)
        assert (one.before.low, one.before.high) == stored.candidates[0].interval
        assert (one.outcome == "pruned") == stored.worth_it
        assert (one.queries, one.part_of) == (measured.queries, told.curations[0].run)
    evaluations = [EvaluationReport.from_json(run.summary) for run in reversed(runs.runs(curated, "evaluate"))]
    shown = [(one.run, one.method, one.accuracy) for one in told.evaluated]
    assert shown == [
        (each.run, name, Interval(figures.accuracy, *figures.ci95))
        for each in evaluations
        for name, figures in each.methods.items()
    ]  # fmt: skip
    (curation,) = told.curations
    assert curation.as_json() == runs.runs(curated, "curate")[0].summary


def test_the_same_method_is_compared_before_and_after(told: PoolReport) -> None:
    by_run = {(one.run, one.method): one for one in told.evaluated}
    pair = next(one for one in told.compared if one.method == "bm25")
    before, after = by_run[pair.before_run, "bm25"], by_run[pair.after_run, "bm25"]
    assert (before.as_read, before.as_now, before.active) == (True, False, 120)
    assert (after.as_read, after.as_now, after.active) == (False, True, told.counts.active)
    assert (pair.before, pair.after) == (before.accuracy.value, after.accuracy.value)
    assert pair.difference.value == pytest.approx(pair.after - pair.before)
    assert 0 < pair.difference.low <= pair.difference.value <= pair.difference.high and pair.queries == 60


def test_an_evaluation_of_the_pool_as_it_is_again_after_an_undo_is_one_of_the_pool_as_it_is(tmp_path: Path) -> None:
    workspace = make_gullible_world(tmp_path / "w")
    _evaluated(workspace)

    def states() -> list[tuple[bool, bool]]:
        return [(one.as_read, one.as_now) for one in gather(workspace, SETTINGS).evaluated if one.method == "bm25"]

    assert states() == [(True, True)]
    relabel(workspace, {"p-0": "yes 1000"})
    assert states() == [(True, False)]
    _evaluated(workspace)
    assert states() == [(True, False), (False, True)]
    undo(workspace)
    assert states() == [(True, True), (False, False)]
    assert not gather(workspace, SETTINGS).compared
    decide(workspace, "keep", "demonstration", ["p-1"])  # which changes nothing
    assert states() == [(True, True), (False, False)]


def test_an_evaluation_after_a_redo_is_one_of_the_pruned_pool(tmp_path: Path) -> None:
    workspace = make_gullible_world(tmp_path / "w")
    _evaluated(workspace)
    decide(workspace, "prune", "demonstration", ["p-0"])
    undo(workspace)
    redo(workspace)
    _evaluated(workspace)
    found = gather(workspace, SETTINGS)
    rows = [(one.active, one.as_read, one.as_now) for one in found.evaluated if one.method == "bm25"]
    assert rows == [(120, True, False), (119, False, True)] and found.compared


def test_what_was_taken_out_is_told_by_reason_with_examples(told: PoolReport, curated: Workspace) -> None:
    gone = pruned_rows(curated)
    assert sum(one.rows for one in told.removals) == gone.size == told.counts.pruned
    outliers = next(one for one in told.removals if one.reason == "check: outlier")
    assert (outliers.rows, outliers.who, len(outliers.examples)) == (8, "ada", 5)
    assert sum(outliers.sources.values()) == 8
    assert len({one.source for one in outliers.examples}) == len(outliers.sources)
    for removal in told.removals:
        for one in removal.examples:
            row = find(curated, one.id)
            entry = latest_decisions(curated, [row.row])[row.row]
            assert (entry.batch, entry.reason, entry.action) == (removal.batch, one.reason, "prune")
            assert (one.input.text, one.output.text, one.source) == (row.input, row.output, row.source)
    assert "to be undone" not in {one.reason for one in told.removals}


def test_corrected_outputs_are_told_with_what_was_there_before(told: PoolReport) -> None:
    mended = told.corrections
    assert (mended.rows, [one.rows for one in mended.changes]) == (2, [1, 1])
    assert [(one.id, one.before.text, one.after.text, one.reason, one.who) for one in mended.examples] == [
        ("p-0", "yes 0", "yes 1000", "check: label, first", "ada"),
        ("p-2", "yes 2", "yes 1001", "second", "ada"),
    ]


def test_what_an_undo_took_back_is_no_row(curated: Workspace) -> None:
    undone = next(made for made in history(curated) if made.action == "undo")
    cells = [cells for rows in _markdown_tables(markdown(document(gather(curated, SETTINGS)))) for cells in rows]
    assert any(row[0] == str(undone.batch) and row[4] == f"#{undone.targets[0]}" for row in cells if len(row) == 6)


def test_an_undone_pruning_is_told_as_undone(curated: Workspace) -> None:
    for _ in range(len([one for one in history(curated) if one.action != "undo" and not one.undone])):
        undo(curated)
    found = gather(curated, SETTINGS)
    assert "undone" in {one.outcome for one in found.confirmed} and not found.removals
    assert "Nothing was taken out." in html(document(found))
    chosen = next(one for one in found.confirmed if one.outcome == "undone")
    tuned = TuneReport.from_json(next(run.summary for run in runs.runs(curated) if run.run == chosen.run))
    revise(curated, tuned.revision, "a reason of one's own")
    again = gather(curated, SETTINGS).confirmed
    assert next(one.outcome for one in again if one.run == chosen.run) == "pruned"


def test_the_way_to_do_it_again(told: PoolReport, curated: Workspace, tmp_path: Path) -> None:
    manifest = export(curated, ExportPlan(out=tmp_path / "out.jsonl")).as_json()
    assert told.reproduction.content_hash == manifest["content_hash"]
    files = [{"path": one.path, "digest": one.digest, "rows": one.rows} for one in told.reproduction.files]
    assert files == manifest["indexed_files"]
    assert [one.batch for one in told.reproduction.decisions] == [one["batch"] for one in manifest["decisions"]][::-1]
    inner = {one.kind for one in told.reproduction.steps if one.part_of == told.curations[0].run}
    assert "tune" in inner and {one.kind for one in told.reproduction.steps if not one.part_of} == {
        "curate",
        "evaluate",
    }
    for command in (told.reproduction.index, *(one.command for one in told.reproduction.steps)):
        _parses(command)


def test_files_of_other_columns_sources_and_labels_are_read_again_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-a.jsonl").write_text('{"input": "first", "output": "yes"}\n{"input": "second", "output": "no"}\n')
    Path("b.csv").write_text("message,tag\nthird one,yes\n")
    Path("c.csv").write_text("input,label\nfourth one,1\n")
    Path("t.csv").write_text("question,output\nfifth,yes\n")
    run("index", "./-a.jsonl", "b.csv", "--map", "b.csv::input=message", "--map", "b.csv::output=tag",
        "--test", "t.csv", "--map", "t.csv::input=question", "--no-encode", "-w", "w")  # fmt: skip
    run("index", "c.csv", "--source", "the third", "--labels", "no,yes", "--no-encode", "-w", "w")
    again = gather(Workspace.open(Path("w")), SETTINGS).reproduction.index
    for command in again.split(" && "):
        run(*shlex.split(command)[1:], "--no-encode", "-w", "v")
    rows, read = (_content(Workspace.open(Path(name))) for name in "wv")
    assert rows == read and again.count("icl-curate index") == 2
    monkeypatch.chdir("v")
    assert f" {tmp_path / '-a.jsonl'} " in gather(Workspace.open(tmp_path / "w"), SETTINGS).reproduction.index


def test_what_was_piped_is_to_be_piped_again(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"input": "first", "output": "yes"}\n')
    index_pool(workspace := Workspace.create(tmp_path / "w"), IndexPlan(paths=(str(tmp_path / "a.jsonl"),)))
    with workspace.write() as con:
        con.execute("UPDATE files SET path = '-'")
    assert gather(workspace, SETTINGS).reproduction.index == "icl-curate index -"


def _content(workspace: Workspace) -> list[tuple[Any, ...]]:
    with workspace.read() as con:
        found = con.execute("SELECT id, source, input, output, split, file FROM demonstrations ORDER BY ALL")
        return found.fetchall()


def _parses(command: str) -> dict[str, Any]:
    """A command line that the command line understands, and what it takes from it."""
    program, *words = shlex.split(command)
    assert program == "icl-curate"
    found: Any = typer.main.get_command(app)
    name = ""
    while words and words[0] in getattr(found, "commands", {}):
        name = words.pop(0)
        found = found.commands[name]
    assert name
    context = found.make_context(name, words)
    assert not context._protected_args  # a word that no command below a group has
    return dict(context.params)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("train-ranker", {"method": "promptpg", "epochs": 2, "trials": 0, "batch": 8, "ranking": "bm25", "k": 2,
                          "candidates": 20, "temperature": 0.5, "seed": 3}),
        ("train-ranker", {"imported_from": "/some where"}),
        ("train-topics", {"questions": 40, "cosine": 0.5, "seed": 1}),
        ("train-rows", {"limit": 30, "suspects_first": True}),
        ("train-datamodel", {}),
        ("train calibration", {}),
        ("calibrate", {"split": "test", "rounds": 2, "arms": ["full", "plain"], "seed": 2}),
        ("calibrate keys", {"split": "validation"}),
        ("tune", {"method": "bm25", "k": 3, "order": "best-first", "queries": 10, "seed": 4, "prompt_format": "Q-A"}),
        ("curate", {"max_calls": 100, "hold": True, "answer": "accept"}),
        ("curate", {"max_cost": 2.5, "method": "dense", "k": 5, "noise": 2.0, "propose": True, "one_step": True,
                    "hold": True}),
    ],
)  # fmt: skip
def test_every_kind_of_run_is_a_command(curated: Workspace, kind: str, settings: dict[str, Any]) -> None:
    number = runs.start(curated, kind, "offline", settings)
    runs.finish(curated, number, "done", {})
    found = gather(curated, SETTINGS).reproduction.steps[-1]
    assert found.run == number and found.kind == kind and "--help" not in found.command
    _parses(found.command)


PLANS: list[tuple[str, object]] = [
    ("curate", CurationPlan(max_calls=100)),
    ("tune", TuningPlan()),
    ("evaluate", EvaluationPlan(methods=("bm25",))),
    ("train-sources", SourcePlan()),
    ("train-rows", RowPlan()),
    ("train-datamodel", DatamodelPlan()),
    ("train-fixed", FixedPlan()),
    ("train-ranker", RankerPlan()),
    ("train-ranker", DEFAULT_INPUTS),
    ("train-topics", TopicPlan()),
    ("train calibration", Recipe()),
    ("calibrate", CalibrationPlan(split="test")),
]
OTHERS: Mapping[str, object] = {
    "depth": 7, "rate": 0.0123456789, "epochs": 4, "noise": 0.5, "limit": 10, "temperature": 1.0, "batch": 3,
    "propose": True, "suspects_first": True, "trials": 30, "threshold": True, "held_out": 0.0,
    "credit": "reward", "sees": "input", "start": "random", "seeds": 1, "llm_topics": False, "nouns": True,
    "cosine": 0.5, "rank": 2, "rounds": 2, "until_correct": True, "prompts": 5, "sets": 4, "patience": 0,
}  # fmt: skip


@pytest.mark.parametrize(("kind", "plan"), PLANS, ids=[f"{kind} {type(plan).__name__}" for kind, plan in PLANS])
def test_a_command_has_what_its_plan_has_other_than_by_default(curated: Workspace, kind: str, plan: Any) -> None:
    """And what the command takes by default is what the plan does."""
    usual = asdict(plan)
    changed = {name: value for name, value in OTHERS.items() if name in usual}
    if "relabel" in usual:
        changed["relabel"] = not usual["relabel"]
    if kind in ("tune", "evaluate"):  # by the number of queries
        changed.pop("limit")
    for had in (usual, usual | changed):
        number = runs.start(curated, kind, "offline", had)
        runs.finish(curated, number, "done", {})
        command = gather(curated, SETTINGS).reproduction.steps[-1].command
        taken = _parses(command)
        options = changed.keys() & taken.keys()
        assert {name: taken[name] for name in options} == {name: had[name] for name in options}, command


def test_a_tuning_that_relabels_is_one_again(curated: Workspace) -> None:
    plan = TuningPlan(relabel=True, noise=0.5)
    Tuning.prepare(LLMClient(curated, Gullible(), SETTINGS), plan).ask(Budget(0))
    command = gather(curated, SETTINGS).reproduction.steps[-1].command
    assert "--relabel" in command and "--noise 0.5" in command


def test_a_command_names_the_template_of_its_run(curated: Workspace) -> None:
    graded = {"metric": "accuracy", "least": 1.0, "binary": True, "why": "labels"}
    for kind, by in (("train-rows", "ticket.jinja (1a2b)"), ("curate", "tickets:prompt (1a2b)"), ("evaluate", "")):
        stored = {"settings": {"template": "xml"}} if kind == "evaluate" else {"graded_by": graded | {"template": by}}
        number = runs.start(curated, kind, "offline", stored | {"max_calls": 9} if kind == "curate" else stored)
        runs.finish(curated, number, "done", {"methods": ["bm25"]} if kind == "evaluate" else {})
        command = gather(curated, SETTINGS).reproduction.steps[-1].command
        assert f"--template {by.partition(' ')[0] or 'xml'}" in command
        _parses(command)
    for by in ("program:router:answer (1a2b)", "auto (1a2b)", None):  # not named by the option
        number = runs.start(curated, "train-rows", "offline", {"graded_by": graded | {"template": by}})
        runs.finish(curated, number, "done", {})
        assert "--template" not in gather(curated, SETTINGS).reproduction.steps[-1].command


# pages


def test_the_page_needs_nothing_and_can_be_read_by_all(told: PoolReport) -> None:
    text = html(document(told))
    page = Page(text)
    assert "http:" not in text and "https:" not in text and "url(" not in text and "@import" not in text
    assert [one["content"] for one in page.metas if one.get("http-equiv") == "Content-Security-Policy"] == [POLICY]
    assert POLICY.startswith("default-src 'none'") and "script" not in text
    assert len(set(page.ids)) == len(page.ids) and set(page.names) <= set(page.ids)
    assert page.links and all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert page.seen["caption"] == page.seen["table"] == len(page.tables) > 8
    assert page.seen["svg"] == page.seen["desc"] == page.seen["title"] - 1 == 3
    assert all(len({len(row) for row in table}) == 1 for table in page.tables)
    assert page.scopes["row"] == sum(len(table) - 1 for table in page.tables)
    assert "prefers-color-scheme:dark" in text and "@media print" in text


def test_markdown_and_html_hold_the_same_tables(told: PoolReport) -> None:
    page = document(told)
    assert _same(_markdown_tables(markdown(page))) == _same(Page(html(page)).tables)


def test_the_figures_are_on_both_pages(told: PoolReport) -> None:
    page = document(told)
    for text in (Page(html(page)).text, unescape(markdown(page)).replace("\\", "")):
        (pair,) = [one for one in told.compared if one.method == "bm25"]
        assert f"{pair.before:.3f} with the pool as it was read, {pair.after:.3f} as it is now" in text
        for one in told.confirmed:
            assert f"{one.gain.value:+.3f} (95 %: {one.gain.low:+.3f} to {one.gain.high:+.3f})" in text
        assert f"{told.counts.active:,} of {told.counts.pool:,} demonstrations are active" in text
        assert f"US$ {told.costs[0].dollars:,.2f}" in text and (told.reproduction.content_hash or "none") in text
        assert "stand-in" not in text


def test_no_text_acts_on_either_page(tmp_path: Path) -> None:
    acting = [{"id": f"{i} {text}", "input": text, "output": text, "source": text} for i, text in enumerate(ACTING)]
    pool, asked = tmp_path / "pool.jsonl", tmp_path / "queries.jsonl"
    records = [*hostile_rows(), *acting]
    pool.write_text("".join(json.dumps(one) + "\n" for one in records), "utf-8")
    asked.write_text("".join(json.dumps(one) + "\n" for one in hostile_queries()), "utf-8")
    workspace = Workspace.create(tmp_path / "w")
    index_pool(workspace, IndexPlan(paths=(str(pool),), validation=(str(asked),)))
    with workspace.read() as con:
        rows = con.execute("SELECT id, input, len(options) FROM pool ORDER BY row").fetchall()
    gone = [name for name, text, _ in rows if len(text) > 100_000 or len(name) % 2]
    reasons = [ACTING[i % len(ACTING)] for i in range(len(gone))]
    decide(workspace, "prune", "demonstration", gone, reasons, ACTING[1])
    mended = {name: f"{ACTING[i % 9]} {i}" for i, (name, _, options) in enumerate(rows[1::2]) if not options}
    relabel(workspace, mended, ACTING[2], ACTING[3], new=True)
    number = runs.start(workspace, "tune", ACTING[1], {text: text for text in ACTING})
    runs.finish(workspace, number, "done", {})
    found = gather(workspace, Settings(), title="".join(ACTING[:-1]))
    page = document(found)
    text, plain = html(page), markdown(page)
    assert got_through(text.encode()) == [] and got_through(plain.encode()) == []
    tables = Page(text).tables
    assert "<script" not in text and "<img" not in text and max(map(len, plain.splitlines())) < 20_000
    assert f"{1_000_000 - SHOWN:,} more characters" in text and f"{1_000_000 - SHOWN:,} more characters" in plain
    shown = _markdown_tables(plain)
    assert [[len(row) for row in table] for table in shown] == [[len(row) for row in table] for table in tables]
    assert len(text) < 500_000


def test_a_workspace_in_which_nothing_was_done_says_so(tmp_path: Path) -> None:
    found = gather(make_pool(tmp_path / "w"), Settings())
    for text in (Page(html(document(found))).text, markdown(document(found))):
        for sentence in (
            "Accuracy was never measured", "Nothing was ever measured", "Nothing was taken out",
            "No output was corrected", "No topics were trained", "No LLM was asked", "were not learnt",
        ):  # fmt: skip
            assert sentence in text, sentence
    assert not found.reproduction.steps and not found.confirmed


def test_a_pool_that_was_emptied_has_a_report(tmp_path: Path) -> None:
    workspace = make_gullible_world(tmp_path / "w")
    with workspace.write() as con:
        con.execute("UPDATE demonstrations SET retired_at = indexed_at")
    found = gather(workspace, Settings())
    text = html(document(found))
    Page(text)
    assert (found.counts.pool, found.reproduction.content_hash) == (0, None)
    assert "The pool is empty." in text


def test_figures_of_the_stand_in_say_that_it_is_no_llm(told: PoolReport) -> None:
    figures = tuple(replace(one, llm="offline") for one in told.evaluated)
    text = html(document(replace(told, evaluated=figures)))
    assert "stand-in that is not an LLM" in text and "say nothing about any LLM" in text


def test_topics_that_cannot_be_read_are_a_note(curated: Workspace) -> None:
    runs.finish(curated, runs.start(curated, "train-topics", "offline", {}), "done", {})
    found = gather(curated, SETTINGS)
    assert found.topics is None and found.notes[0].startswith("topics cannot be read: ")
    assert found.notes[0] in Page(html(document(found))).text


# the command


def test_the_command_writes_the_page_whole_and_overwrites_only_if_told(
    run: Run, curated: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, where = tmp_path / "new folder" / "page.html", ("-w", curated.path)
    done = run("report", out, "--title", "For <you>", *where)
    assert done.code == 0 and done.out == f"wrote {out} ({out.stat().st_size:,} bytes)\n"
    first = out.read_text(encoding="utf-8")
    assert "<h1>For &lt;you&gt;</h1>" in first
    refused = run("report", out, *where)
    assert refused.code == 2 and "--force" in refused.err and out.read_text(encoding="utf-8") == first

    def fails(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("icl_curate.engine.base.files.os.fsync", fails)
        full = run("report", out, "--title", "other", "--force", *where)
    assert full.code == 1 and "no space left" in full.err.lower()
    assert out.read_text(encoding="utf-8") == first and list(out.parent.iterdir()) == [out]
    assert run("report", out, "--title", "other", "--force", *where).code == 0
    assert "<h1>other</h1>" in out.read_text(encoding="utf-8")


def test_the_command_tells_what_it_gathered(run: Run, curated: Workspace, tmp_path: Path) -> None:
    out = tmp_path / "page.md"
    data = run("report", out, "-w", curated.path, "--json").json
    assert data.pop("schema_version") == 1 and data.pop("out") == str(out)
    told = gather(curated, Settings()).as_json()
    told["made_at"] = data["made_at"]
    assert data == json.loads(json.dumps(told))
    assert out.read_text(encoding="utf-8").startswith("# What was done to the pool")


@pytest.mark.parametrize("name", ["page.pdf", "page", "folder.html"])
def test_what_cannot_be_written_is_refused_before_anything_is_read(
    run: Run, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder.html").mkdir()
    monkeypatch.setattr(gathering, "gather", None)
    done = run("report", tmp_path / name, "--force", "-w", tmp_path / "none")
    assert done.code == 2 and re.search("name it OUT.html|choose another name", done.err)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder that takes no files")
def test_a_folder_that_takes_no_files_is_said_in_a_line(run: Run, curated: Workspace) -> None:
    refused = run("report", "/proc/page.html", "-w", curated.path)
    assert refused.code == 1 and refused.err.startswith("error: cannot create /proc/page.html\nfix: choose another")


def test_there_is_no_page_of_nothing(tmp_path: Path, run: Run) -> None:
    Workspace.create(tmp_path / "w")
    refused = run("report", tmp_path / "out.html", "-w", tmp_path / "w")
    assert refused.code == 2 and "nothing is indexed yet" in refused.err and not (tmp_path / "out.html").exists()
