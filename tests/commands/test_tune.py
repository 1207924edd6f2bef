"""`tune` from the command line: the decision on what is served, its cost, its limits, and its undo."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from factories.commands import SAMPLE, Run

SMALL = ("tune", "-m", "bm25", "-k", 3, "--limit", 60)


ROWS = 400


@pytest.fixture
def support(run: Run, tmp_path: Path) -> Path:
    """Fifty rows of each source of the sample pool, and sixty validation queries: a race looks at all of them again and
    again."""

    def beginning(path: Path, rows: int) -> Path:
        (copy := tmp_path / path.name).write_text("".join(path.read_text().splitlines(keepends=True)[:rows]))
        return copy

    pool = [beginning(path, 50) for path in sorted((SAMPLE / "support/pool").glob("*.jsonl"))]
    asked = beginning(SAMPLE / "support/validation.jsonl", 60)
    done = run("index", *pool, "--validation", asked, "-w", tmp_path / "w", "--json").json
    assert (done["demonstrations"], done["validation"]) == (ROWS, 60)
    return tmp_path / "w"


def test_a_dry_run_asks_nothing_and_a_run_decides_and_is_undone(run: Run, support: Path) -> None:
    where = ("-w", support)
    assert run("train", "sources", "--limit", 60, "-b", 20, *where).code == 0
    dry = run(*SMALL, "--noise", 0, *where, "--dry-run", "--json").json
    assert (dry["dry_run"], dry["run"], dry["confirmed"], dry["pruned"], dry["batch"]) == (True, None, None, [], None)
    assert 60 < dry["to_ask"] <= 60 * len(dry["candidates"])
    assert dry["candidates"][0]["pruned_rows"] == 0
    planned = run(*SMALL, *where, "--dry-run")
    assert "keep everything" in planned.out and "to ask" in planned.out

    done = run(*SMALL, "--noise", 0, *where, "--json")
    assert done.code == 0, done.err
    told = done.json
    assert (told["served"]["method"], told["served"]["k"], told["worth_it"]) == ("bm25", 3, True)
    assert 0 < told["calls"] <= dry["to_ask"] and told["confirmed"]["calls"] == told["calls"]
    assert told["gain"] == told["confirmed"]["gain"] > 0
    assert told["pruned"] or told["pruned_rows"]
    entry = run("history", *where, "--json").json["history"][0]
    assert entry["batch"] == told["batch"] and entry["reason"].startswith(f"run {told['run']}: {told['proposed']}")
    assert set(entry["targets"]) == {*told["pruned"], *told["pruned_rows"]}
    chosen = next(each for each in told["candidates"] if each["chosen"])
    active = run("status", *where, "--json").json["active"]
    assert active == ROWS - chosen["pruned_rows"]
    assert run("status", *where, "--json").json["runs"]["tune"] == 1

    assert run("undo", *where).code == 0
    assert run("status", *where, "--json").json["active"] == ROWS
    known = run(*SMALL, "--noise", 0, *where, "--dry-run", "--json").json  # every answer is in the cache
    assert (known["dry_run"], known["run"], known["worth_it"]) == (True, None, True)
    assert (known["pruned"], known["confirmed"]) == (told["pruned"], told["confirmed"])
    assert run("status", *where, "--json").json["active"] == ROWS

    measured = run(*SMALL, "--noise", 0, "--propose", *where)
    assert measured.code == 0 and "to prune it: icl-curate tune apply" in measured.out
    assert run("status", *where, "--json").json["active"] == ROWS
    decided = run("tune", "apply", *where, "--json").json
    assert decided["active_after"] == active and set(decided["targets"]) == set(entry["targets"])
    again = run("tune", "apply", *where)
    assert again.code == 2 and "is pruned already" in again.err
    assert run("undo", *where).code == 0


def test_a_budget_stops_the_race_without_an_error_and_the_next_one_goes_on(run: Run, support: Path) -> None:
    where = ("-w", support)
    first = run(*SMALL, "--max-calls", 150, *where, "--json")
    assert first.code == 0, first.err
    assert first.json["calls"] <= 150 and "the budget was enough for" in first.json["stopped"]
    assert 0 < first.json["confirmed"]["queries"] < 60
    second = run(*SMALL, "--max-calls", 0, *where)
    assert (second.code, "the budget was enough for" in second.out) == (0, True)
    whole = run(*SMALL, "--noise", 1e6, *where)
    assert whole.code == 0 and "not beyond noise, nothing is pruned" in whole.out
    assert run("history", *where, "--json").json["history"] == []
    level = re.search(r"to take it all the same: this command with --noise (\S+)", whole.out)
    assert level is not None, whole.out
    taken = run(*SMALL, "--noise", level[1], "--max-calls", 0, *where)  # by the answers that are known
    assert taken.code == 0 and "not beyond noise" not in taken.out
    assert len(run("history", *where, "--json").json["history"]) == 1


def test_what_cannot_be_tuned_is_said_in_one_line(run: Run, support: Path, tmp_path: Path) -> None:
    for words, said in (
        (("-m", "zero"), "without demonstrations"),
        (("-m", "rerank"), "calls the LLM to select"),
        (("--limit", 3), "3 validation queries are too few"),
    ):
        done = run("tune", *words, "-w", support)
        assert (done.code, done.out) == (2, "")
        assert said in done.err and "Traceback" not in done.err
    for words, said in (
        (("prune", "--source", "crm_export", "--propose"), "No such option: --propose"),
        (("suspects", "prune", "--background"), "No such option: --background"),
        (("tune", "vote", "--propose"), "No such option: --propose"),
        (("tune", "apply"), "no pruning was measured"),
    ):
        done = run(*words, "-w", support)
        assert (done.code, done.out) == (2, "") and said in done.err
    bare = tmp_path / "bare"
    assert run("index", SAMPLE / "facts/pool/*.jsonl", "-w", bare, "--no-encode").code == 0
    done = run("tune", "-m", "bm25", "-w", bare, "--json")
    assert (done.code, done.out) == (2, "")
    assert "tuning needs validation queries" in json.loads(done.err)["error"]
