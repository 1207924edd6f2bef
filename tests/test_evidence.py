"""The tables of docs/evidence/replayed.md are what its commands say of the recorded answers.

Here that is seen of what needs no vectors: what a prompt is, which rows are selected, how answers are read, counted and
written down. Nine tenths of the whole are the vectors of the pool and of its tokens, and `make evidence` looks at every
figure before each release.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from factories.commands import Run

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def evidence() -> ModuleType:
    spec = importlib.util.spec_from_file_location("evidence", ROOT / "benchmarks" / "evidence.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def in_process(evidence: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class of workspaces without vectors, whose commands run in this process."""
    monkeypatch.setenv("ICL_CURATE_DTYPE", "float32")

    class InProcess(evidence.Workspace):  # type: ignore[misc]
        def run(self, *arguments: object) -> dict[str, Any]:
            more = ("--no-encode",) if arguments[0] == "index" else ()
            ran = run(*arguments, *more, "-w", self.folder, "--json")
            assert ran.code == 0, ran.err
            return ran.json

    return InProcess


@pytest.fixture
def here(evidence: Any, in_process: Any, tmp_path: Path) -> Any:
    """A workspace of the recorded answers by its pool."""
    return lambda world: in_process(tmp_path, world, f"replay:{evidence.RECORDINGS / world}.parquet")


def test_the_rounds_of_a_calibration_are_those_of_a_replay(evidence: Any, here: Any) -> None:
    page = evidence.PAGE.read_text(encoding="utf-8")
    assert evidence.written(page, evidence.facts(here("facts"))) == page


def test_what_needs_no_vectors_is_that_of_a_replay(evidence: Any, here: Any) -> None:
    workspace = here("support")
    workspace.index("support")
    page = evidence.PAGE.read_text(encoding="utf-8")
    found = evidence.with_worst_and_without(workspace, ("zero", "random", "bm25"))
    in_page(page, "methods", evidence.methods_table(found, 0))
    ways = {"as it came": (), "only true rows": evidence.only(evidence.wrong_rows())}
    in_page(page, "curation", evidence.gains(workspace, ways, ("bm25",), 60, 5))


def test_a_replay_that_lacks_answers_may_differ_by_what_they_can_change_and_no_more(evidence: Any) -> None:
    page = "| dense | 0.450 | 0.33–0.58 | 88% |"
    moved = page.replace("0.450", "0.467").replace("0.58", "0.60")
    assert evidence.alike(page, page, 0)
    assert not evidence.alike(page, moved, 0)
    assert evidence.alike(page, moved, 2)
    assert not evidence.alike(page, page.replace("0.450", "0.500"), 2)
    assert not evidence.alike(page, page.replace("88%", "89%"), 2)
    assert not evidence.alike(page, page.replace("dense", "dpp"), 2)


def test_missing_prompts_are_counted_once_with_those_that_have_an_answer(
    evidence: Any, here: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = here("support")
    workspace.index("support")
    for _ in range(2):  # a prompt that is asked for again is still one prompt
        workspace.ask("evaluate", "-m", "zero,bm25", "--limit", 3, "--seeds", 1, "--sweep", "k=5,6")
    assert evidence.missing(workspace) == (3, 9)  # six shots were never recorded
    assert "support: 3 of 9 prompts have no recorded answer" in capsys.readouterr().err


@pytest.mark.parametrize(("share", "fails"), [(0.33, True), (0.34, False)])
def test_a_replay_fails_beyond_a_share_of_missing_prompts_and_names_them_below_it(
    evidence: Any,
    in_process: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    share: float,
    fails: bool,
) -> None:
    def lacking_three_of_nine(workspace: Any) -> dict[str, str]:
        workspace.index("support")
        workspace.ask("evaluate", "-m", "zero,bm25", "--limit", 3, "--seeds", 1, "--sweep", "k=5,6")
        return {}

    assert evidence.SHARE == 0.01
    monkeypatch.setattr(evidence, "SHARE", share)
    monkeypatch.setattr(evidence, "Workspace", in_process)
    monkeypatch.setattr(evidence, "PARTS", {"support": lacking_three_of_nine})
    monkeypatch.setattr("sys.argv", ["evidence.py", "--check"])
    with pytest.raises(SystemExit) as ended:
        evidence.main()
    refused = f"3 of 9 prompts have no recorded answer, more than {share:.0%}: --record asks the LLM"
    assert ended.value.code == (refused if fails else 0)
    *each, counted = capsys.readouterr().err.splitlines()[-4:]
    assert counted == "support: 3 of 9 prompts have no recorded answer"
    assert len(set(each)) == 3 and all("no answer to this prompt" in line for line in each)


def test_the_curves_of_two_trainings_are_compared_as_far_as_both_go(evidence: Any) -> None:
    assert evidence.apart([4.0, 2.0, 1.0], [4.0, 2.02]) == pytest.approx(0.005)
    shown = {"metrics": {"held_out": 3, "epochs": [{"loss": 2.0}, {"loss": 1.0}]}}
    assert evidence.curve(shown) == [2.0, 1.0]
    assert evidence.curve({"metrics": {"trials": [0.1, 0.2], "batches": []}}) == [0.1, 0.2]
    assert evidence.curve({"metrics": {"batches": [{"loss": 3.0}, {"loss": 2.0}]}}) == [3.0]


def in_page(page: str, name: str, table: str) -> None:
    """Whether each row of a table stands in the page's, which may have more rows and more columns."""
    marked = page.split(f"<!-- evidence: {name} -->\n", 1)[1]
    theirs, found = cells(marked), cells(table)
    assert len(found) > 1
    for row, figures in found.items():
        assert figures.items() <= theirs[row].items(), row


def cells(table: str) -> dict[str, dict[str, str]]:
    """A table's cells by row and column: the name of a column of intervals is that before it and its own. Without the
    share of the gap, which is that of the last method."""
    heads, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines_of(table)]
    names = [f"{before} {head}" if head == "95 %" else head for before, head in zip(["", *heads], heads, strict=False)]
    return {row[0]: {name: cell for name, cell in zip(names, row, strict=True) if name != "gap closed"} for row in rows}


def lines_of(table: str) -> list[str]:
    lines = table.splitlines()
    return lines[: next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))]
