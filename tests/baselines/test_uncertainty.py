"""mdl, mdr and cone against plain forward passes of a tiny model, and against scores written down by hand."""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import pytest
from factories.asked_world import (
    ENCODER,
    GENERATES,
    SCORES,
    SETTINGS,
    Copy,
    Scripted,
    copier,
    evaluate,
    make_world,
    outcomes,
    texts,
)
from factories.models import Reference, save_model
from icl_curate.engine.backends.hf.model import LocalModel
from icl_curate.engine.base.errors import LLMError, UsageError
from icl_curate.engine.base.progress import Event, Monitor
from icl_curate.engine.baselines import uncertainty
from icl_curate.engine.evaluate.compare import Evaluation, EvaluationPlan
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.loop import close
from icl_curate.engine.llm.types import Answer, Failure, Keep, Request, Result
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.prompting.template import AUTO, question_of
from icl_curate.engine.retrieval.vectors import Vectors, folder_of
from icl_curate.engine.store.demonstrations import active_rows, fetch, queries
from icl_curate.engine.store.workspace import Workspace

LABELS = ("red", "blue", "possible")
SHORT = replace(SETTINGS, k=2, instruction="Name a colour.")


class Recorded(LocalModel):
    """The local model, keeping what it was asked."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asked: list[Request] = []

    async def ask_each(self, requests: Sequence[Request], keep: Keep) -> None:
        self.asked += requests
        await super().ask_each(requests, keep)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "llama", "llama")


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder)


@pytest.fixture
def model(folder: Path) -> Iterator[Recorded]:
    backend = Recorded(str(folder))
    yield backend
    close(backend)


@pytest.fixture(scope="module")
def _labelled(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    pool = [{"id": f"d{i}", "input": t, "output": LABELS[i % 3]} for i, t in enumerate(texts(36, 5, words=3))]
    test = [{"id": f"q{i}", "input": t, "output": LABELS[i % 3]} for i, t in enumerate(texts(3, 6, words=3))]
    return make_world(tmp_path_factory.mktemp("labelled") / "w", pool, test)


@pytest.fixture
def labelled(_labelled: Workspace, tmp_path: Path) -> Copy:
    return copier(_labelled, tmp_path)


def _nearest(workspace: Workspace) -> dict[str, list[tuple[str, float]]]:
    """Each query's ids and cosines, all of the pool, nearest first."""
    matrix = Vectors.open(folder_of(workspace.path, ENCODER)).matrix.astype(float)
    shots = fetch(workspace, active_rows(workspace))
    found = {}
    for query in queries(workspace, "test"):
        cosines = [(shot.id, float(matrix[query.row] @ matrix[shot.row])) for shot in shots]
        found[query.id] = sorted(cosines, key=lambda pair: -pair[1])
    return found


def _plain(reference: Reference, prompt: Prompt, choice: str) -> list[float]:
    """The choice's log-probabilities token by token, from one forward pass over prompt and choice."""
    before, ids = reference.ids(prompt.text), reference.ids(f"{prompt.text} {choice}")
    assert ids[: len(before)] == before
    rows = reference.logprobs(ids)
    return [float(rows[place - 1, ids[place]]) for place in range(len(before), len(ids))]


def _shares(logprobs: list[list[float]]) -> np.ndarray[Any, Any]:
    """Softmax of mean log-probabilities."""
    weights = np.exp([np.mean(values) for values in logprobs])
    return np.asarray(weights / weights.sum())


def test_mdl_takes_the_set_of_least_entropy(labelled: Copy, model: Recorded, reference: Reference) -> None:
    workspace = labelled("w")
    table = evaluate(workspace, model, "mdl", settings=SHORT)
    kept = outcomes(workspace, table.run, "mdl")
    near = _nearest(workspace)
    tried: dict[str, dict[tuple[str, ...], tuple[float, str]]] = defaultdict(dict)
    for request in model.asked:
        prompt = request.prompt
        if prompt.demonstrations and prompt.query.id.startswith("q"):
            scored = [_plain(reference, prompt, choice) for choice in prompt.choices]
            shares = _shares(scored)
            best = prompt.choices[int(np.argmax([sum(values) for values in scored]))]
            shown = tuple(shot.id for shot in prompt.demonstrations[::-1])
            tried[prompt.query.id][shown] = (-float(shares @ np.log(shares)), best)
    assert set(tried) == set(kept) and len(kept) == 3
    for query, sets in tried.items():
        ids = [name for name, _ in near[query]]
        assert tuple(ids[: SHORT.k]) in sets and uncertainty.SETS - 1 <= len(sets) <= uncertainty.SETS
        for shown in sets:
            places = [ids.index(name) for name in shown]
            assert places == sorted(set(places)) and places[-1] < uncertainty.CANDIDATES
        least = min(sets, key=lambda shown: sets[shown][0])
        assert kept[query]["shots"] == list(least)
        assert kept[query]["answer"] == sets[least][1]
    assert table.methods["mdl"].usage.calls == 3 * uncertainty.SETS


def test_mdl_draws_other_sets_under_another_seed(labelled: Copy, model: Recorded) -> None:
    workspace = labelled("w")

    def drawn(seed: int) -> set[tuple[str, ...]]:
        model.asked.clear()
        evaluate(workspace, model, "mdl", settings=replace(SHORT, seed=seed))
        return {tuple(d.id for d in r.prompt.demonstrations) for r in model.asked if r.prompt.demonstrations}

    first, other = drawn(0), drawn(1)
    assert len(other - first) > 20  # of 27
    assert drawn(0) == set()  # all of it cached


def test_mdr_takes_near_ones_that_the_model_answers_itself(
    labelled: Copy, model: Recorded, reference: Reference
) -> None:
    workspace = labelled("w")
    table = evaluate(workspace, model, "mdr", settings=SHORT)
    right: dict[str, float] = {}
    for request in model.asked:
        if request.prompt.query.id.startswith("d"):
            assert request.prompt.demonstrations == ()
            shares = _shares([_plain(reference, request.prompt, choice) for choice in request.prompt.choices])
            right[request.prompt.query.id] = shares[request.prompt.choices.index(request.prompt.query.answers[0])]
    assert max(right.values()) - min(right.values()) > 0.1
    changed = 0
    for query, found in _nearest(workspace).items():
        near = found[: uncertainty.CANDIDATES]
        by_score = sorted(near, key=lambda pair: -(pair[1] - uncertainty.ERROR * (1 - right[pair[0]])))
        shots = outcomes(workspace, table.run, "mdr")[query]["shots"]
        assert shots == [name for name, _ in by_score[: SHORT.k]]
        changed += shots != [name for name, _ in near[: SHORT.k]]
    assert changed  # else the scores would not have mattered
    assert table.methods["mdr"].usage.calls == len(right) + 3


@pytest.mark.parametrize("split", ["test", "validation"])
def test_the_penalty_of_mdr_is_chosen_on_queries_that_it_is_not_judged_by(
    split: Literal["test", "validation"], labelled: Copy, model: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The choice, repeated with the methods' own answers under each fixed penalty."""
    monkeypatch.setattr(uncertainty, "ERRORS", (0.5, 0.0, 5.0))
    workspace = labelled("w")
    with workspace.write() as con:  # two of the three test queries become validation queries
        rows = [query.row for query in queries(workspace, "test")]
        apart = rows[1:] if split == "test" else rows
        con.execute("UPDATE demonstrations SET split = 'validation' WHERE row IN (SELECT unnest(?::BIGINT[]))", [apart])
    notes: list[Event] = []

    def picked(error: float | None, on: Literal["test", "validation"]) -> dict[str, dict[str, Any]]:
        plan = EvaluationPlan(methods=("mdr",), seeds=1, split=on, mdr_error=error)
        client = LLMClient(workspace, model, SHORT, Monitor(notes.append))
        return outcomes(workspace, Evaluation.prepare(client, plan).ask(Budget()).run, "mdr")

    fixed = {error: picked(error, "validation") for error in uncertainty.ERRORS}
    names = [query.id for query in queries(workspace, "validation")]

    def best(chosen_on: list[str]) -> float:
        return max(uncertainty.ERRORS, key=lambda error: sum(fixed[error][name]["correct"] for name in chosen_on))

    chosen = picked(None, split)
    if split == "test":
        assert chosen == picked(best(names), "test")
    else:  # each half by the other one
        for own, other in ((names[0::2], names[1::2]), (names[1::2], names[0::2])):
            assert {name: chosen[name] for name in own} == {name: fixed[best(other)][name] for name in own}
    assert len({json.dumps(found, sort_keys=True) for found in fixed.values()}) > 1
    assert any("C = " in event.note for event in notes)


def test_the_penalty_of_mdr_is_chosen_by_the_metric(
    labelled: Copy, model: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked about the answers to every validation query, under each penalty."""
    workspace = labelled("w")
    with workspace.write() as con:
        rows = [query.row for query in queries(workspace, "test")][1:]
        con.execute("UPDATE demonstrations SET split = 'validation' WHERE row IN (SELECT unnest(?::BIGINT[]))", [rows])
    seen: list[tuple[str, tuple[str, ...]]] = []

    def score(answer: str, accepted: Sequence[str]) -> float:
        seen.append((answer, tuple(accepted)))
        return 1.0

    module = ModuleType("own_metric")
    module.score = score  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_metric", module)

    monkeypatch.setattr(uncertainty, "ERRORS", (0.0, 5.0))
    plan = EvaluationPlan(methods=("mdr",), seeds=1, mdr_error=None)
    Evaluation.prepare(LLMClient(workspace, model, replace(SHORT, metric="own_metric:score")), plan).ask(Budget())
    chosen_on = {query.answers for query in queries(workspace, "validation")}
    assert sum(accepted in chosen_on for _, accepted in seen) >= 2 * len(rows)
    with pytest.raises(UsageError, match="cannot be chosen by a judge"):
        Evaluation.prepare(LLMClient(workspace, model, replace(SHORT, metric="judge")), plan)


def test_mdr_scores_the_outputs_of_open_questions(tmp_path: Path, model: Recorded, reference: Reference) -> None:
    pool = [{"id": f"d{i}", "input": t, "output": f"the dog {i}"} for i, t in enumerate(texts(12, 7, words=2))]
    test = [{"id": f"q{i}", "input": t, "output": "the dog"} for i, t in enumerate(texts(2, 8, words=2))]
    workspace = make_world(tmp_path / "w", pool, test)
    table = evaluate(workspace, model, "mdr", settings=replace(SHORT, max_tokens=2))
    own = {r.prompt.query.id: r.prompt for r in model.asked if r.prompt.query.id.startswith("d")}
    probability = {name: math.exp(np.mean(_plain(reference, prompt, *prompt.choices))) for name, prompt in own.items()}
    for query, near in _nearest(workspace).items():
        by_score = sorted(near, key=lambda pair: -(pair[1] - uncertainty.ERROR * (1 - probability[pair[0]])))
        assert outcomes(workspace, table.run, "mdr")[query]["shots"] == [name for name, _ in by_score[: SHORT.k]]


def test_cone_takes_those_after_which_the_query_surprises_least(
    labelled: Copy, model: Recorded, reference: Reference
) -> None:
    workspace = labelled("w")
    table = evaluate(workspace, model, "cone", settings=SHORT)
    kept = outcomes(workspace, table.run, "cone")
    shots = {shot.id: shot for shot in fetch(workspace, active_rows(workspace))}
    near = _nearest(workspace)
    asked = partial(question_of, AUTO)
    for query in queries(workspace, "test"):
        surprise = {}
        for name, _ in near[query.id][: uncertainty.CANDIDATES]:
            prompt = uncertainty.query_after(query, shots[name], asked).prompt
            assert shots[name].input in prompt.text and shots[name].output in prompt.text
            assert query.input not in prompt.text and prompt.choices == (f"Question: {query.input}",)
            surprise[name] = -sum(_plain(reference, prompt, *prompt.choices))
        assert kept[query.id]["shots"] == sorted(surprise, key=lambda name: surprise[name])[: SHORT.k]
    assert table.methods["cone"].usage.calls == 3 * (uncertainty.CANDIDATES + 1)


def test_entropy_by_hand() -> None:
    assert uncertainty.entropy(Answer("a", option_logprobs=((-1.0,), (-1.0, -1.0)))) == pytest.approx(math.log(2))
    assert uncertainty.entropy(Answer("a", option_logprobs=((-2000.0,), (-1.0,)))) == pytest.approx(0.0)
    p = 1 / (1 + math.exp(-3))
    wanted = -(p * math.log(p) + (1 - p) * math.log(1 - p))
    assert uncertainty.entropy(Answer("a", option_logprobs=((-1.0,), (-3.0, -5.0)))) == pytest.approx(wanted)
    assert uncertainty.entropy(Failure("context", "too long")) == math.inf == uncertainty.entropy(Answer("a"))


def _scores(request: Request) -> Result:
    """Log-probabilities that hang on every letter of the prompt."""
    if not request.score:
        return Answer("generated")
    values = tuple((-0.1 - sum(map(ord, request.prompt.text + choice)) % 97 / 30,) for choice in request.prompt.choices)
    return Answer(request.prompt.choices[values.index(max(values))], option_logprobs=values)


@pytest.mark.parametrize("answers", ["auto", "generate"])
def test_all_methods_answer_in_the_same_way(labelled: Copy, answers: str) -> None:
    """What chooses by scores is not also answered by scores where the other methods' answers are generated."""
    workspace, backend = labelled("w"), Scripted(_scores, SCORES)
    table = evaluate(workspace, backend, "dense", "mdl", "mdr", "cone", settings=replace(SHORT, answers=answers))
    generates = answers == "generate"
    assert table.setup.answered_by == ("generate" if generates else "score")
    for method in ("dense", "mdl", "mdr", "cone"):
        said = {found["answer"] for found in outcomes(workspace, table.run, method).values()}
        assert (said == {"generated"}) == generates
    calls = {name: row.usage.calls for name, row in table.methods.items()}
    assert calls["mdl"] == 3 * (uncertainty.SETS + generates)
    asked = [(r.prompt.messages, r.prompt.choices, r.score) for r in backend.asked]
    assert len(asked) == len(set(asked))  # the nearest set is asked about once, for dense and for mdl


def test_what_can_run_is_named_where_one_method_cannot(labelled: Copy) -> None:
    workspace = labelled("w")
    deaf = Scripted(_scores, replace(SCORES, instructs=False))
    with pytest.raises(LLMError, match="cone needs answers to free instructions") as raised:
        evaluate(workspace, deaf, "dense", "cone", "mdl", "mdr", settings=SHORT)
    assert raised.value.fix.startswith("-m dense,mdl,mdr, which can run; or ") and not deaf.asked
    silent = Scripted(_scores, GENERATES)
    with pytest.raises(LLMError, match=r"cone needs .*; mdl needs ") as raised:
        evaluate(labelled("v"), silent, "cone", "mdl", settings=SHORT)  # what was probed is kept with a workspace
    assert "which can run" not in raised.value.fix


@pytest.mark.parametrize("method", ["mdl", "mdr", "cone"])
def test_failed_scores_count_and_do_not_choose(labelled: Copy, method: str) -> None:
    workspace = labelled("w")
    failed: list[Request] = []

    def say(request: Request) -> Result:
        selects = request.score and len(request.prompt.demonstrations) != SHORT.k if method != "mdl" else request.score
        zero = request.prompt.query.id.startswith("q") and not request.prompt.demonstrations
        if selects and not zero and sum(map(ord, request.prompt.text)) % 2:
            failed.append(request)
            return Failure("context", "too long")
        return _scores(request)

    table = evaluate(workspace, Scripted(say, SCORES), method, settings=SHORT)
    assert table.methods[method].usage.failures == len(failed) > 0
    kept = outcomes(workspace, table.run, method)
    assert all(found["failure"] == "" for found in kept.values())
    lost = {(r.prompt.query.id, tuple(d.id for d in r.prompt.demonstrations[::-1])) for r in failed}
    for query, found in kept.items():
        if method == "mdl":
            assert (query, tuple(found["shots"])) not in lost
        if method == "cone":
            assert not {(query, (name,)) for name in found["shots"]} & lost
