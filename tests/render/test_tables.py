"""Tables on terminals of any width: what matters stays, what is left out is named, and figures are whole."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from icl_curate.engine.checks.evidence import PoolEvidence, RowEvidence
from icl_curate.engine.checks.results import CheckReport, Finding
from icl_curate.engine.curate.results import CandidateResult, Difference, ServingSettings, TuneReport
from icl_curate.engine.evaluate.results import EvaluationReport, MethodFigures, Setup, SweepPoint, SweepReport, Versus
from icl_curate.engine.jobs.folder import Job
from icl_curate.engine.jobs.kinds import JobCommand
from icl_curate.engine.llm.cost import Usage
from icl_curate.engine.llm.marks import Tally
from icl_curate.engine.papers.topics.report import Gap
from icl_curate.engine.store.browse import Listed
from icl_curate.engine.store.decisions import DecisionBatch
from icl_curate.engine.store.trials import SourceSummary
from icl_curate.render.checks import show_checks, show_suspects
from icl_curate.render.columns import shortened, sized
from icl_curate.render.curate import show_tuning
from icl_curate.render.evaluation import show_evaluation, show_sweep
from icl_curate.render.jobs import show_jobs
from icl_curate.render.learned import show_gaps, show_sources
from icl_curate.render.pool import show_history, show_page
from icl_curate.render.tables import Bar, Head, show_table
from rich.cells import cell_len
from rich.text import Text

LONG = "customer-conversations-2021-to-2023-exported-from-the-archive-of-emea"
WIDTHS = (40, 60, 80, 120, 250)
TEXT = "which of the two accounts that I have with you was charged for the card that I lost in March"


def _sources() -> None:
    show_sources(
        [
            SourceSummary(name, 0.9 - i / 9, -0.05, 0.5, 4_729_047, 2_000, 12, 1_024, 0.25, bool(i))
            for i, name in enumerate((LONG, "crowd", "clean"))
        ]
    )


def _gaps() -> None:
    show_gaps([Gap("terms of the mortgage", 12, 0.25, 40.0, 0.5, 4.5, ("interest", "deeds of property"), ())] * 2)


def _jobs() -> None:
    folder = Path("/nowhere/1")
    line = JobCommand.of(["evaluate", "--methods", "zero,random,bm25,dense,ranker", "--split", "validation"])
    show_jobs(
        [
            Job(12, folder, line, "/", "failed", 1.0, 1, 10.0, 75.0, error="the server said no to all of it"),
            Job(11, folder, line, "/", "done", 1.0, 1, 10.0, 75.0),
        ]
    )


def _history() -> None:
    when = datetime(2026, 11, 22, 10, 30)
    show_history(
        [
            DecisionBatch(
                7,
                when,
                "curator",
                "prune",
                "source",
                (LONG, "crowd"),
                "looked wrong in a sample",
                True,
                {LONG: 9, "crowd": 2},
            )
        ]
    )


def _demos() -> None:
    show_page([Listed(1_234, f"{LONG}-1234", LONG, TEXT, "lost or stolen card", True, None)], 20)


def _evaluate() -> None:
    versus = Versus("dense", 0.0625, 0.01, 0.1, 0.01, "mcnemar", 0.0404)
    figures = MethodFigures(
        0.8125,
        0.01,
        (0.7, 0.9),
        0.9,
        0.4,
        3,
        Usage(9_000, 10, 2, 9, 9),
        5.0,
        f1=0.7,
        versus=versus,
        outcomes=Tally(right=380, wrong=97, failed=3),
    )
    setup = Setup("test", 480, 5, "openai:model", "labels", "accuracy", "score", 3, {}, "1")
    show_evaluation(EvaluationReport(4, setup, 300, 180, {"zero": figures, f"ranker:{LONG}": figures}))


def _sweep() -> None:
    points = []
    for k in (0, 5):
        figures = MethodFigures(0.8125, 0.0, (0.7, 0.9), 0.9, 0.4, 1, Usage(480, 10, 2, 9, 9), float(k))
        setup = Setup("test", 480, k, "openai:model", "labels", "accuracy", "score", 1, {}, "1")
        points.append(SweepPoint(k, EvaluationReport(4, setup, 300, 180, {"zero": figures, f"ranker:{LONG}": figures})))
    show_sweep(SweepReport("k", tuple(points)))


def _tune() -> None:
    def candidate(name: str, versus: Difference | None) -> CandidateResult:
        return CandidateResult(name, "", (LONG,), 440, 200, 0.8125, versus, 49, False)

    candidates = (candidate("keep everything", None), candidate(f"worst: {LONG}", Difference(0.165, 0.094, 0.236)))
    served = ServingSettings("dense", 5, "best-last")
    given = ("vote", "", (), (), (), None, None, 0.0, None, False, None, candidates, "", (), ())
    show_tuning(TuneReport(4, "openai:model", Usage(9, 10, 2, 9, 9), served, *given))


def _suspects() -> None:
    row = RowEvidence(
        3, "row-1234", LONG, TEXT, "card_swallowed", 0.954, {"source": -1.7, "label": 4.7}, {}, "lost", 0.9
    )
    show_suspects([row], PoolEvidence((row,), ("source", "label"), ()))


TABLES: dict[str, tuple[Callable[[], None], list[str], list[str]]] = {
    "sources": (_sources, ["source", "weight", "leave 1 out", "reliability", "alone", "hits", "size", "pruned",
                           "repeats", "kept"], ["0.900", "0.678", "crowd"]),
    "topics --gaps": (_gaps, ["gap", "queries", "LLM knows", "covered", "severity", "with", "for example"],
                      ["0.250", "0.500"]),
    "jobs": (_jobs, ["#", "state", "took", "command"], ["failed", "12", "done", "the server"]),
    "history": (_history, ["#", "time", "user", "action", "rows", "what", "reason"], ["prune", "undone"]),
    "suspects": (_suspects, ["id", "source", "input", "output", "hurts", "source", "label", "suggestion"],
                 ["row-1234", "0.954", "card_swallowed"]),
    "demos": (_demos, ["row", "id", "source", "input", "output"], ["pruned", "which of the"]),
    "evaluate": (_evaluate, ["method", "accuracy", "95 %", "bounds", "std", "F1", "easy", "hard", "shots", "calls",
                             "failed", "against best", "p"], ["0.812", "zero"]),
    "tune": (_tune, ["candidate", "rows", "sources", "queries", "accuracy", "against all", "dropped after"],
             ["0.812", "keep"]),
    "evaluate --sweep": (_sweep, ["method", "k", "accuracy", "0 to 1", "95 %", "shots"], ["0.812", "zero"]),
}  # fmt: skip
"""Every table, all of its columns, and what it says at any width."""


def _printed(show: Callable[[], None], width: int | None, monkeypatch: pytest.MonkeyPatch, capsys: object) -> list[str]:
    if width is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", str(width))
    show()
    return capsys.readouterr().out.splitlines()  # type: ignore[attr-defined, no-any-return]


def test_a_note_on_a_column_is_there_with_the_column(capsys: pytest.CaptureFixture[str]) -> None:
    _evaluate()
    assert "against best: " in capsys.readouterr().out
    figures = MethodFigures(0.8125, 0.0, (0.7, 0.9), 0.9, 0.4, 1, Usage(480, 10, 2, 9, 9), 5.0)
    setup = Setup("test", 480, 5, "openai:model", "labels", "accuracy", "score", 1, {}, "1")
    show_evaluation(EvaluationReport(4, setup, 300, 180, {"zero": figures}))
    assert "against best" not in capsys.readouterr().out


@pytest.mark.parametrize("width", WIDTHS)
def test_a_finding_stands_beside_the_input_it_is_about(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Finding(3, "row-1234", LONG, TEXT, "lost", "label", 0.95, "suggested found at .94", "relabel: found")
    lines = _printed(lambda: show_checks(CheckReport(40, (found,), {"label": 1}, ()), 20), width, monkeypatch, capsys)
    assert any(line.startswith("row-1234") and TEXT[:8] in line and "suggested" in line for line in lines)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", TABLES)
def test_no_column_goes_in_silence(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show, columns, always = TABLES[name]
    lines = _printed(show, width, monkeypatch, capsys)
    assert max(map(cell_len, lines)) <= width
    heading, text = lines[0], " ".join(lines)
    told = re.search(r"\+(\d+) columns? in a wider terminal: (.*)", " ".join(line.rstrip() for line in lines))
    shown = [column for column in columns if re.search(rf"(^|\s){re.escape(column)}($|\s)", heading)]
    left_out = [column for column in columns if column not in shown]
    assert (int(told[1]) if told else 0) == len(left_out)
    assert told is None or told[2].startswith(", ".join(left_out))
    assert all(one in text for one in always)
    assert "against all" not in shown or "+0.165 (+0.094 to +0.236)" in text  # figures are not cut
    if width >= 120:
        assert not left_out
    if width >= 60:
        assert len(shown) >= len(columns) // 3  # a long name does not push them out


@pytest.mark.parametrize("name", TABLES)
def test_a_pipe_gets_all_of_it(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    show, columns, _ = TABLES[name]
    lines = _printed(show, None, monkeypatch, capsys)
    assert all(column in lines[0] for column in columns)
    assert "…" not in " ".join(lines)
    assert name in ("topics --gaps", "jobs") or any(LONG in line for line in lines)


def test_a_table_of_labels_and_values_has_no_heading_and_wraps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = _printed(lambda: show_table(["", ""], [("pool", TEXT), ("task", "labels")]), 40, monkeypatch, capsys)
    assert lines[0].startswith("pool which of the two")
    assert " ".join(" ".join(lines).split()) == f"pool {TEXT} task labels"


def test_a_figure_stays_with_its_bar_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def show() -> None:
        show_table([Head("name", cut="middle"), "", Head("share")], [[LONG, Bar(0.5), 0.5]])

    assert _printed(show, 20, monkeypatch, capsys) == ["name           share", "custome…f-emea 0.500"]
    assert "█████" in _printed(show, 40, monkeypatch, capsys)[1]


def test_a_cut_text_is_as_wide_as_its_column() -> None:
    draw = random.Random(0)
    for _ in range(300):
        text = "".join(draw.choice(["a", "漢", "e\u0301", "👩‍👩‍👧", " "]) for _ in range(draw.randrange(60)))
        width = draw.randrange(1, 40)
        for cut in ("end", "middle", "start"):
            assert sized(Text(text), width, cut=cut).cell_len == width, (text, width, cut)
    assert shortened(Text(LONG), 11, "middle").plain == "custo…-emea"
    assert shortened(Text("row-1234"), 6, "start").plain == "…-1234"
    assert shortened(Text("x" * 1_000_000), 7, "middle").plain == "xxx…xxx"
