"""Small pools for methods that ask the LLM while they select, and LLMs whose every reply a test decides."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from icl_curate.engine.base.progress import CancelToken
from icl_curate.engine.evaluate.compare import Evaluation, EvaluationPlan
from icl_curate.engine.evaluate.results import EvaluationReport
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Answer, Backend, Capabilities, Request, Result
from icl_curate.engine.retrieval.vectors import Vectors, folder_of
from icl_curate.engine.store.demonstrations import content_keys
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace

from factories.backends import OwnBackend
from factories.copies import copied, lines

ENCODER, WIDTH = "world", 16
SETTINGS = Settings(encoder=ENCODER, llm="scripted", device="cpu", k=3)
WORDS = [a + b for a in ("ar", "be", "cor", "du", "fel", "gim") for b in ("mon", "tas", "vi", "lok", "rup", "sen")]


def make_world(
    path: Path, pool: Sequence[Mapping[str, Any]], test: Sequence[Mapping[str, Any]], seed: int = 0
) -> Workspace:
    """Index rows, each with a random unit vector as its embedding."""
    texts = {f"{path.name}-{name}.jsonl": lines(rows) for name, rows in (("pool", pool), ("test", test))}
    digest = sha256(json.dumps([texts, seed]).encode()).hexdigest()
    return Workspace.open(copied(path, f"asked {digest[:16]}", lambda made: _make(made, texts, seed)))


def _make(path: Path, texts: Mapping[str, str], seed: int) -> Workspace:
    for name, text in texts.items():
        (path.parent / name).write_text(text, encoding="utf-8")
    workspace = Workspace.create(path)
    pool, test = (str(path.parent / name) for name in texts)
    index_pool(workspace, IndexPlan(paths=(pool,), test=(test,)))
    keys = content_keys(workspace)
    vectors = np.random.default_rng(seed).normal(size=(len(keys), WIDTH))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    stored = Vectors.create(folder_of(path, ENCODER), ENCODER, WIDTH)
    stored.write(np.arange(len(keys)), vectors.astype(np.float32), keys)
    return workspace


Copy = Callable[[str], Workspace]


def copier(built: Workspace, base: Path) -> Copy:
    """Gives copies of a workspace: indexing one for each test would take most of its time."""

    def copy(name: str) -> Workspace:
        shutil.copytree(built.path, base / name)
        return Workspace.open(base / name)

    return copy


def texts(count: int, seed: int, words: int = 4) -> list[str]:
    """Different short texts over few words, so that BM25 has something to find."""
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found[" ".join(rng.sample(WORDS, words))] = None
    return list(found)


GENERATES, SCORES = Capabilities(logprobs=False, scoring=False), Capabilities(logprobs=True, scoring=True)
Say = Callable[[Request], "str | Result"]


class Scripted(OwnBackend):
    """An LLM that says what the test's function says; it keeps what it was asked and can stop mid-way."""

    def __init__(
        self,
        say: Say,
        capabilities: Capabilities = GENERATES,
        cancel: CancelToken | None = None,
        stop_after: int | None = None,
    ) -> None:
        self.say, self.capabilities = say, capabilities
        self.cancel, self.stop_after = cancel, stop_after
        self.asked: list[Request] = []

    async def ask(self, requests: Sequence[Request]) -> list[Result]:
        self.asked += requests
        if self.cancel and self.stop_after is not None and len(self.asked) >= self.stop_after:
            self.cancel.cancel()
        said = [self.say(request) for request in requests]
        return [Answer(reply, tokens_in=1, tokens_out=1) if isinstance(reply, str) else reply for reply in said]


def evaluation(
    workspace: Workspace,
    backend: Backend,
    *methods: str,
    settings: Settings = SETTINGS,
    limit: int | None = None,
    **more: Any,
) -> Evaluation:
    """The methods on the test split under one seed."""
    return Evaluation.prepare(
        LLMClient(workspace, backend, settings, **more), EvaluationPlan(methods=methods, seeds=1, limit=limit)
    )


def evaluate(workspace: Workspace, backend: Backend, *methods: str, **more: Any) -> EvaluationReport:
    return evaluation(workspace, backend, *methods, **more).ask(Budget())


def outcomes(workspace: Workspace, run: int, method: str) -> dict[str, dict[str, Any]]:
    """What was kept of a run, by the query's id; the shots as ids, best first."""
    with workspace.read() as con:
        ids = dict(con.execute("SELECT row, id FROM demonstrations").fetchall())
        kept = con.execute(
            "SELECT row, demonstrations, answer, failure, correct, dropped FROM evaluations"
            " WHERE run = ? AND method = ?",
            [run, method],
        ).fetchall()
    return {
        ids[row]: {
            "shots": [ids[shot] for shot in shots],
            "answer": answer,
            "failure": failure,
            "correct": correct,
            "dropped": dropped,
        }
        for row, shots, answer, failure, correct, dropped in kept
    }
