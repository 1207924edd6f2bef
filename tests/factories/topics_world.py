"""A pool of five subjects whose truth is known, two of which its LLM does not know."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Answer, Capabilities, Request, Result
from icl_curate.engine.papers.topics.results import TopicRun
from icl_curate.engine.papers.topics.train import TopicPlan, TopicTraining
from icl_curate.engine.retrieval.encoder import Local
from icl_curate.engine.retrieval.vectors import Vectors, folder_of
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.store.demonstrations import content_keys
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace

from factories.backends import OwnBackend
from factories.copies import copied

SUBJECTS = {
    "garden": ["rose bush", "compost heap", "lawn mower", "tulip bulb"],
    "kitchen": ["frying pan", "bread dough", "soup ladle", "oven mitt"],
    "harbour": ["fishing net", "tug boat", "anchor chain", "pilot cutter"],
    "chess": ["opening gambit", "pawn structure", "rook ending", "clock flag"],
    "opera": ["soprano aria", "orchestra pit", "libretto page", "stage curtain"],
}

LOST = ("chess", "opera")

FILLER = ["yesterday", "quickly", "small", "question", "about", "morning", "colleague", "quiet"]

SETTINGS = Settings(encoder="words", llm="scripted", device="cpu", k=3)

PLAN = TopicPlan(held_out=0.15, epochs=12, rate=3e-3, questions=200)

WIDTH = 48


class Words(Local):
    """An encoder: the sum of a random direction for each word."""

    name, dimension = "words", WIDTH

    def encode(self, texts: Sequence[str], report: Any = None, cancel: Any = None) -> np.ndarray[Any, Any]:
        found = np.array([sum(map(self._word, text.lower().split()), np.zeros(WIDTH)) for text in texts])
        lengths = np.maximum(np.linalg.norm(found.reshape(-1, WIDTH), axis=1, keepdims=True), 1e-9)
        return (found.reshape(-1, WIDTH) / lengths).astype(np.float32)

    def _word(self, word: str) -> np.ndarray[Any, Any]:
        seed = int.from_bytes(hashlib.blake2b(word.strip(".,?").encode(), digest_size=4).digest())
        return np.random.default_rng(seed).normal(size=WIDTH)


class Scripted(OwnBackend):
    """Knows everything but the lost subjects and the kitchen; names a subject's topics when it may be instructed."""

    def __init__(self, instructs: bool = False) -> None:
        self.instructs = instructs
        self.capabilities = Capabilities(logprobs=False, scoring=False, instructs=instructs)
        self.asked: list[str] = []

    def identity(self) -> Mapping[str, Any]:
        return {"backend": "scripted", "instructs": self.instructs}

    def _answer(self, request: Request) -> Result:
        text = request.prompt.messages[-1].content
        self.asked.append(text)
        subject = subject_of(request.prompt.query.input)
        if "Candidate topics:" in text:
            named = [phrase for phrase in SUBJECTS[subject] if phrase in text]
            return Answer(f"1. {', '.join(named)}, {subject} matters, {hashlib.md5(text.encode()).hexdigest()}")
        return Answer(subject if subject not in (*LOST, "kitchen") else "no idea")


def subject_of(text: str) -> str:
    return next(s for s, phrases in SUBJECTS.items() if any(p.split()[0] in text for p in phrases))


def make_world(path: Path, monkeypatch: pytest.MonkeyPatch, lost: Sequence[str] = ()) -> Workspace:
    """Each row names two phrases of its subject; the pool lacks the ``lost`` subjects, validation and test do not."""
    monkeypatch.setattr(PoolView, "encoder", Words())
    return Workspace.open(copied(path, f"topics without {lost}", lambda made: _make(made, lost)))


def learnt_world(path: Path, monkeypatch: pytest.MonkeyPatch, lost: Sequence[str] = ()) -> Workspace:
    """The same once topics are trained as `train` does."""
    monkeypatch.setattr(PoolView, "encoder", Words())
    return Workspace.open(copied(path, f"topics learnt without {lost}", lambda made: train(_make(made, lost))))


def _make(path: Path, lost: Sequence[str]) -> Workspace:
    rng = random.Random(0)

    def write(name: str, count: int, subjects: Sequence[str]) -> Path:
        file = path.parent / f"{path.name}-{name}.jsonl"
        rows = []
        for i in range(count):
            subject = subjects[i % len(subjects)]
            said = rng.sample(SUBJECTS[subject], 2)
            text = " ".join([rng.choice(FILLER), said[0], *rng.sample(FILLER, 2), said[1], str(i)])
            rows.append({"id": f"{name}-{i}", "input": text, "output": subject, "source": f"{subject}-desk"})
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return file

    files = [
        write("pool", 240, [s for s in SUBJECTS if s not in lost]),
        write("val", 60, list(SUBJECTS)),
        write("test", 20, list(SUBJECTS)),
    ]
    workspace = Workspace.create(path)
    index_pool(workspace, IndexPlan(paths=(str(files[0]),), validation=(str(files[1]),), test=(str(files[2]),)))
    with workspace.read() as con:
        rows = con.execute("SELECT row, input FROM demonstrations ORDER BY row").fetchall()
    stored = Vectors.create(folder_of(workspace.path, "words"), "words", WIDTH)
    numbers = np.array([row for row, _ in rows])
    stored.write(numbers, Words().encode([text for _, text in rows]), content_keys(workspace)[numbers])
    return workspace


def train(workspace: Workspace, backend: Scripted | None = None, plan: TopicPlan = PLAN) -> TopicRun:
    return TopicTraining.prepare(LLMClient(workspace, backend or Scripted(), SETTINGS), plan).ask(Budget())
