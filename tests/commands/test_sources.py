"""Source importance from the command line: what scripts read with ``--json``, recounted, and the exit codes."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.commands import SAMPLE, Run

TRUTH = json.loads((SAMPLE / "support" / "truth.json").read_text(encoding="utf-8"))["sources"]
Row = dict[str, Any]


@pytest.mark.parametrize(
    "command",
    [
        ("prune", "--below", 0.2),
        ("tune", "vote"),
        ("topics",),
        ("evaluate", "-m", "ranker"),
        ("evaluate", "-m", "fixed"),
    ],
)
def test_what_is_not_trained_names_the_command_that_trains_it(
    run: Run, support: Path, command: Sequence[object]
) -> None:
    refused = run(*command, "-w", support)
    fix = refused.err.splitlines()[-1].removeprefix("fix: icl-curate ")
    assert refused.code == 2 and fix.startswith("train ")
    assert run(*shlex.split(fix), "--dry-run").code == 0


def test_from_training_to_pruning_and_back(run: Run, support: Path) -> None:
    where = ("-w", support)
    small = ("--limit", 100, "-b", 20)
    dry = run("train", "sources", *small, *where, "--dry-run", "--json")
    assert (dry.code, dry.json["requests"], dry.json["cached"]) == (0, 2000, 0)
    untrained = {s["source"]: s for s in run("sources", *where, "--json").json["sources"]}
    assert {s["weight"] for s in untrained.values()} == {s["hits"] for s in untrained.values()} == {None}

    trained = run("train", "sources", *small, *where, "--json")
    assert trained.code == 0, trained.err
    told = trained.json
    assert (told["schema_version"], told["llm"], told["calls"], told["failures"]) == (1, "offline", 2000, 0)
    assert told["tokens_in"] > told["tokens_out"] > 0
    assert 0 <= told["cached_calls"] <= told["calls"] - dry.json["distinct"]
    again = run("train", "sources", *small, *where, "--json").json
    assert (again["cached_calls"], again["run"]) == (2000, told["run"] + 1)
    assert again["metrics"] == told["metrics"]

    listed = run("sources", *where, "--json").json["sources"]
    assert {s["source"]: s["demonstrations"] for s in listed} == {name: t["rows"] for name, t in TRUTH.items()}
    assert sum(s["hits"] or 0 for s in listed) == 2000
    assert all(s["kept"] for s in listed)
    scores = told["metrics"]["sources"]
    for s in listed:
        learnt = scores.get(s["source"], {"multilinear": None, "leave-one-out": None, "reliability": None})
        assert [s["weight"], s["leave_one_out"], s["reliability"]] == [
            learnt["multilinear"],
            learnt["leave-one-out"],
            learnt["reliability"],
        ]
    weights = [s["weight"] for s in listed if s["weight"] is not None]
    assert weights == sorted(weights, reverse=True)

    planned = run("tune", "vote", "--noise", 0, *where, "--dry-run", "--json").json
    tuned = run("tune", "vote", "--noise", 0, *where, "--json").json
    assert (planned["dry_run"], tuned["dry_run"]) == (True, False)
    assert {k: v for k, v in planned.items() if k != "dry_run"} == {k: v for k, v in tuned.items() if k != "dry_run"}
    assert tuned["run"] == again["run"]
    assert set(tuned["pruned"]) & set(tuned["kept"]) == set()
    assert set(tuned["pruned"]) | set(tuned["kept"]) == set(scores)
    assert "archive_2019" in tuned["pruned"]
    assert tuned["validation_before"] == tuned["curve"][0]["validation_accuracy"] == told["metrics"]["baseline"]
    point = next(p for p in tuned["curve"] if p["dropped"] == len(tuned["pruned"]))
    assert point["threshold"] == tuned["threshold"]
    assert tuned["validation_after"] == tuned["validation_before"] + tuned["gain"]
    assert [p["dropped"] for p in tuned["curve"]] == sorted({p["dropped"] for p in tuned["curve"]})

    after = {s["source"]: s["kept"] for s in run("sources", *where, "--json").json["sources"]}
    assert {name for name, kept in after.items() if not kept} == set(tuned["pruned"])
    entry = run("history", *where, "--json").json["history"][0]
    assert (entry["batch"], sorted(entry["targets"])) == (tuned["batch"], sorted(tuned["pruned"]))
    assert run("undo", *where, "--json").json["pruned"] == []

    bar = 0.5
    below = run("prune", "--below", bar, *where, "--json")
    assert set(below.json["pruned"]) == {s["source"] for s in listed if s["weight"] is not None and s["weight"] < bar}
    assert run("prune", "--below", -1, *where).code == 2


def test_a_small_gain_is_called_noise_and_nothing_is_decided(run: Run, support: Path) -> None:
    assert run("train", "sources", "--limit", 20, "-b", 10, "-w", support).code == 0
    for arguments in (["--json"], []):
        done = run("tune", "vote", "--noise", 1e6, "-w", support, *arguments)
        assert done.code == 0, done.err
        if arguments:
            assert (done.json["pruned"], done.json["worth_it"], done.json["batch"]) == ([], False, None)
            assert done.json["validation_after"] == done.json["validation_before"]
        else:
            assert "nothing is pruned" in done.out + done.err
    assert run("history", "-w", support, "--json").json["history"] == []


def test_a_budget_is_kept_and_what_was_answered_is_not_paid_again(run: Run, support: Path) -> None:
    small = ("train", "sources", "--limit", 30, "-b", 20, "-w", support)
    refused = run(*small, "--max-calls", 100, "--json")
    assert (refused.code, refused.out) == (4, "")
    error = json.loads(refused.err)
    assert (error["exit_code"], bool(error["fix"])) == (4, True)
    assert run("tune", "vote", "-w", support).code == 2  # a run that did not end teaches nothing
    left = run(*small, "--dry-run", "--json").json
    assert (left["cached"], left["to_ask"]) == (100, left["distinct"] - 100)
    assert run(*small, "--max-calls", left["to_ask"]).code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["train", "sources"], 5, "no workspace"),
        (["sources"], 5, "no workspace"),
        (["tune"], 5, "no workspace"),
        (["prune", "--below", "0.5"], 5, "no workspace"),
        (["prune", "--below", "0.5", "--source", "x"], 2, "--below names what to prune"),
        (["tune", "--source", "x"], 2, "--source"),
        (["tune", "magic"], 2, "magic"),
        (["prune", "--below", "low"], 2, "low"),
        (["prune", "--below", "20"], 2, "less than or equal to 1"),
        (["calibrate", "--above", "200"], 2, "less than or equal to 100"),
        (["train", "sources", "--depth", "1"], 2, "depth"),
        (["train", "nonsense"], 2, "nonsense"),
        (["train", "sources", "--max-cost", "1", "--llm", "openai:m"], 2, "price"),
        (["audit"], 2, "log"),
        (["audit", "no-such-log.jsonl"], 2, "no such log"),
        (["audit", "x.jsonl", "--group-by", "magic"], 2, "magic"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, said: str
) -> None:
    monkeypatch.setenv("ICL_CURATE_WORKSPACE", str(tmp_path / "none"))
    if "--max-cost" in arguments:  # needs a workspace to get as far as its price
        assert run("index", SAMPLE / "facts/pool/*.jsonl", "-w", tmp_path / "none", "--no-encode").code == 0
    done = run(*arguments)
    assert (done.code, done.out) == (code, ""), done
    assert said in done.err
    assert "Traceback" not in done.err


def test_before_training_pruning_says_what_to_run(run: Run, support: Path) -> None:
    for arguments in (["tune", "vote"], ["prune", "--below", "0.5"]):
        done = run(*arguments, "-w", support)
        assert (done.code, done.out) == (2, "")
        assert "icl-curate train sources" in done.err


def _recorded(seed: int, questions: int) -> list[Row]:
    """Eight sources of fifteen answers; two of them never say the right one."""
    draw = random.Random(seed)
    rows = []
    for number in range(questions):
        sources = [f"s{draw.randrange(8)}" for _ in range(15)]
        answers = [
            f"lie {s}" if s in ("s6", "s7") else ("right" if draw.random() < 0.6 else f"slip {draw.randrange(3)}")
            for s in sources
        ]
        rows.append(
            {
                "question": f"question {number}",
                "correct_answers": ["right", "also right"],
                "retrieved_answers": answers,
                "retrieved_sources": sources,
            }
        )
    return rows


def _write(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _accuracy(rows: Sequence[Row], k: int, pruned: Sequence[str]) -> float:
    """Share of questions whose majority among the first k kept answers is correct; ties go to the first met."""
    right = []
    for row in rows:
        pairs = zip(row["retrieved_answers"], row["retrieved_sources"], strict=True)
        first = [answer for answer, source in pairs if source not in pruned][:k]
        winner = max(dict.fromkeys(first), key=first.count, default=None)
        right.append(winner in row["correct_answers"])
    return float(np.mean(right))


def test_an_audit_says_what_a_count_of_the_log_says(run: Run, tmp_path: Path) -> None:
    rows, fresh = _recorded(1, 120), _recorded(2, 200)
    log, test = _write(tmp_path / "log.jsonl", rows), _write(tmp_path / "test.jsonl", fresh)
    done = run("audit", log, "--test", test, "-k", 5, "--json")
    assert done.code == 0, done.err
    told = done.json
    assert (told["schema_version"], told["k"], told["validation"], told["test"]) == (1, 5, 120, 200)
    assert told["baseline"]["validation_accuracy"] == pytest.approx(_accuracy(rows, 5, []))
    assert told["baseline"]["test_accuracy"] == pytest.approx(_accuracy(fresh, 5, []))
    assert {"multilinear", "leave-one-out", "reliability"} <= set(told["estimators"])
    for way in told["estimators"].values():
        assert way["validation_accuracy"] == pytest.approx(_accuracy(rows, 5, way["pruned"]))
        assert way["test_accuracy"] == pytest.approx(_accuracy(fresh, 5, way["pruned"]))
    assert {"validation_accuracy", "test_accuracy", "pruned"} <= set(told["chosen"])
    assert {"s6", "s7"} <= set(told["estimators"]["reliability"]["pruned"])
    assert told["chosen"]["test_accuracy"] > told["baseline"]["test_accuracy"]
    assert {s["source"]: s["hits"] for s in told["sources"]} == {
        name: sum(row["retrieved_sources"].count(name) for row in rows) for name in (f"s{i}" for i in range(8))
    }
    table = run("audit", log, "--test", test, "-k", 5)
    assert (table.code, "s7" in table.out) == (0, True)


def test_an_audit_without_a_test_log_or_with_too_few_questions(run: Run, tmp_path: Path) -> None:
    told = run("audit", _write(tmp_path / "log.jsonl", _recorded(3, 30)), "-k", 3, "--json").json
    assert told["test"] is None
    assert {way["test_accuracy"] for way in (*told["estimators"].values(), told["chosen"])} == {None}
    few = run("audit", _write(tmp_path / "few.jsonl", _recorded(3, 2)), "--json")
    assert (few.code, few.out) == (2, "")
    assert "too few" in json.loads(few.err)["error"]
