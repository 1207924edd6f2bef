"""Source importance of the sample pool, learnt through the real door and judged by the truth that came with it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import SAMPLE, Run
from icl_curate.engine.errors import UsageError
from icl_curate.engine.index.artefacts import encode_for_reader
from icl_curate.engine.index.view import PoolView
from icl_curate.engine.llm import runner
from icl_curate.engine.llm.asking import backend_for, prompt_for
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.types import Answer, Failure, Request, Result
from icl_curate.engine.pool.answers import is_correct
from icl_curate.engine.settings import Settings
from icl_curate.engine.sources.learn import ESTIMATORS
from icl_curate.engine.sources.train import SourcePlan, SourceTraining, lists_of, sources_below, tune
from icl_curate.engine.store import trials
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.demonstrations import fetch, queries, task_of
from icl_curate.engine.store.workspace import Workspace

TRUTH = json.loads((SAMPLE / "support" / "truth.json").read_text(encoding="utf-8"))["sources"]
SETTINGS = Settings()


def _train(workspace: Workspace, plan: SourcePlan | None = None) -> dict[str, Any]:
    with backend_for(SETTINGS, encode_for_reader(workspace, SETTINGS)) as backend:
        return SourceTraining(workspace, backend, SETTINGS, plan or SourcePlan()).run(Budget())


def _vote(answers: Sequence[str], k: int) -> str | None:
    """Majority of the first k, ties to the answer met first."""
    first = list(answers)[:k]
    return max(first, key=lambda a: (first.count(a), -first.index(a)), default=None)


def test_trials_are_the_llms_answers_to_the_nearest_demonstrations_alone(support: Path) -> None:
    workspace = Workspace.open(support)
    _train(workspace, SourcePlan(depth=6, limit=5))
    found = trials.latest(workspace)
    assert found is not None
    asked = queries(workspace, "validation", 5)
    ranked = PoolView(workspace, SETTINGS).dense_top(asked, 6)
    assert found.rows.tolist() == [row for rows, _ in ranked for row in rows.tolist()]
    task = task_of(workspace)
    with backend_for(SETTINGS, encode_for_reader(workspace, SETTINGS)) as backend:
        for i, (query, (rows, _)) in enumerate(zip(asked, ranked, strict=True)):
            prompts = [prompt_for(query, [shot], task, SETTINGS)[0] for shot in fetch(workspace, rows)]
            answers = runner.ask(workspace, backend, [Request(prompt, score=True) for prompt in prompts])
            right = [isinstance(a, Answer) and is_correct(a.text, query.answers, task.labels) for a in answers]
            assert found.right[i * 6 : i * 6 + 6].tolist() == right


def test_bad_sources_are_found_pruned_and_the_vote_gains_what_it_says(support: Path) -> None:
    workspace = Workspace.open(support)
    done = _train(workspace)
    assert {"run", "llm", "calls", "cached_calls", "tokens_in", "tokens_out", "metrics"} <= set(done)
    found = trials.latest(workspace)
    assert found is not None
    lists = lists_of(found)
    stored = {s.source: s for s in trials.standings(workspace)}
    for name, score in zip(lists.names, ESTIMATORS["multilinear"](lists, SETTINGS.k), strict=True):
        assert stored[name].weight == pytest.approx(score)
    clean = stored["helpdesk_team"]
    for name, source in stored.items():
        if TRUTH[name]["kind"] in {"outdated-scheme", "confuser"}:
            assert source.reliability is not None
            assert clean.reliability is not None
            assert source.reliability < clean.reliability
            assert source.accuracy == pytest.approx(
                np.mean([r for r, s in zip(found.right, found.sources, strict=True) if s == name])
            )

    tuned = tune(workspace, SETTINGS)
    assert tuned.worth_it
    assert {"archive_2019", "partner_desk"} <= set(tuned.pruned)
    assert "helpdesk_team" not in tuned.pruned

    def validation(dropped: Sequence[str]) -> float:
        """By hand: the vote of the first k answers whose source is kept."""
        by_query: dict[int, list[tuple[str, bool]]] = {}
        for query, source, answer, right in zip(found.queries, found.sources, found.answers, found.right, strict=True):
            kept = by_query.setdefault(int(query), [])
            if source not in dropped:
                kept.append((answer, bool(right)))
        hits = [dict(kept).get(_vote([a for a, _ in kept], SETTINGS.k) or "", False) for kept in by_query.values()]
        return float(np.mean(hits))

    assert tuned.validation_before == pytest.approx(validation([]))
    assert tuned.validation_after == pytest.approx(validation(tuned.pruned))
    assert tuned.curve[0][1:] == (0, pytest.approx(tuned.validation_before))


def test_a_second_run_asks_nothing_and_learns_the_same(support: Path) -> None:
    workspace = Workspace.open(support)
    plan = SourcePlan(depth=10, limit=30)
    first, again = _train(workspace, plan), _train(workspace, plan)
    assert again["cached_calls"] == again["calls"] == 300
    assert again["metrics"] == first["metrics"]


def test_sources_that_are_all_alike_are_left_alone(support: Path) -> None:
    workspace = Workspace.open(support)
    draw = random.Random(5)
    with workspace.write() as con:
        rows = [row for (row,) in con.execute("SELECT row FROM demonstrations WHERE split = 'pool'").fetchall()]
        for row in rows:
            con.execute("UPDATE demonstrations SET source = ? WHERE row = ?", [f"s{draw.randrange(8)}", row])
    _train(workspace)
    tuned = tune(workspace, SETTINGS)
    assert (tuned.worth_it, tuned.pruned) == (False, ())
    assert tuned.validation_after == tuned.validation_before


def test_failed_calls_are_counted_and_teach_nothing(support: Path) -> None:
    workspace = Workspace.open(support)
    with backend_for(SETTINGS, encode_for_reader(workspace, SETTINGS)) as backend:
        whole = backend.ask

        async def partly(requests: Sequence[Request]) -> list[Result]:
            results = await whole(requests)
            return [Failure("refusal", "no") if i % 4 == 0 else result for i, result in enumerate(results)]

        backend.ask = partly  # type: ignore[method-assign]
        done = SourceTraining(workspace, backend, SETTINGS, SourcePlan(depth=8, limit=20)).run(Budget())
    found = trials.latest(workspace)
    assert found is not None
    assert done["failures"] > 0
    assert len(found.rows) == done["calls"] - done["failures"]


def test_what_cannot_be_learnt_from_is_refused_before_anything_is_asked(support: Path) -> None:
    workspace = Workspace.open(support)
    with pytest.raises(UsageError, match="no source weights"):
        tune(workspace, SETTINGS)
    with pytest.raises(UsageError, match="no source weights"):
        sources_below(workspace, 0.5)
    with pytest.raises(UsageError, match="cannot rank"):
        _train(workspace, SourcePlan(ranking="magic"))
    decide(workspace, "prune", "source", [name for name in TRUTH if name != "helpdesk_team"])
    with pytest.raises(UsageError, match="one source only"):
        _train(workspace)
    with workspace.write() as con:
        con.execute("UPDATE demonstrations SET retired_at = now()::TIMESTAMP WHERE split = 'validation'")
    with pytest.raises(UsageError, match="validation queries"):
        _train(workspace)
    with workspace.read() as con:
        assert con.execute("SELECT count(*) FROM llm_calls").fetchone() == (0,)


def test_the_commands_keep_their_contracts(run: Run, support: Path, tmp_path: Path) -> None:
    dry = run("train", "sources", "-w", support, "-n", 20, "-b", 8, "--dry-run", "--json").json
    assert (dry["requests"], dry["cached"]) == (160, 0)
    refused = run("train", "sources", "-w", support, "-n", 20, "-b", 8, "--max-calls", 10)
    assert refused.code == 4
    trained = run("train", "sources", "-w", support, "-n", 40, "-b", 20, "--json")
    assert trained.code == 0, trained.err
    assert {"run", "llm", "calls", "cached_calls", "tokens_in", "tokens_out", "metrics"} <= set(trained.json)
    listed = run("sources", "-w", support, "--json").json["sources"]
    assert {"source", "weight", "leave_one_out", "reliability", "demonstrations", "hits", "kept"} <= set(listed[0])
    tuned = run("prune", "--tune", "-w", support, "--json", "--dry-run").json
    assert {"pruned", "kept", "validation_before", "validation_after", "curve"} <= set(tuned)
    lowest = min(s["weight"] for s in listed if s["weight"] is not None)
    below = run("prune", "--below", lowest + 1e-9, "-w", support, "--json")
    assert below.code == 0, below.err
    assert set(below.json["pruned"]) == {s["source"] for s in listed if s["weight"] == lowest}
    assert run("prune", "--tune", "--undo", "-w", support).code == 2


def test_audit_keeps_its_contract(run: Run, tmp_path: Path) -> None:
    draw = random.Random(2)
    for name, rows in (("log", 60), ("test", 40)):
        with (tmp_path / f"{name}.jsonl").open("w") as file:
            for i in range(rows):
                sources = [f"s{draw.randrange(6)}" for _ in range(15)]
                answers = [
                    "right" if s not in ("s4", "s5") and draw.random() < 0.7 else f"wrong{draw.randrange(2)}"
                    for s in sources
                ]
                row = {"question": f"q{i}", "correct_answers": ["right"], "retrieved_answers": answers}
                file.write(json.dumps(row | {"retrieved_sources": sources}) + "\n")
    done = run("audit", tmp_path / "log.jsonl", "--test", tmp_path / "test.jsonl", "-k", 5, "--json")
    assert done.code == 0, done.err
    assert {"k", "validation", "test", "estimators", "chosen"} <= set(done.json)
    for way in (*done.json["estimators"].values(), done.json["chosen"]):
        assert {"validation_accuracy", "test_accuracy", "pruned"} <= set(way)
    assert {"s4", "s5"} <= set(done.json["estimators"]["reliability"]["pruned"])
    assert run("audit", tmp_path / "none.jsonl").code == 2
