"""A world whose truth is known: which demonstrations help a scripted LLM, which mislead it, and why.

Texts say which of a dozen topics a row is about, so BM25 finds the right topic and nothing more. How good a
demonstration is stands in its embedding, as a house style would. The LLM is right where what it knows itself (easy
queries) or does not know (hard ones) and the helpful less the misleading demonstrations in its prompt add up to more
than nothing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from icl_curate.engine.base.progress import CancelToken
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.llm.types import Answer, Request, Result
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.retrieval.vectors import Vectors, folder_of
from icl_curate.engine.retrieval.view import EXAMPLES, text_key
from icl_curate.engine.store.demonstrations import content_keys
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace

from factories.backends import OwnBackend
from factories.copies import copied

ENCODER = "world"
TOPICS, WIDTH = 12, 48
KINDS = {"helpful": 0.35, "neutral": 0.35, "misleading": 0.3}
SETTINGS = Settings(encoder=ENCODER, llm="scripted", device="cpu")


def make_world(
    path: Path, pool: int = 480, validation: int = 220, test: int = 240, seed: int = 0, visible: float = 0.5
) -> Workspace:
    """Index the world. Ids begin with the kind of a demonstration, or with easy or hard. ``visible``: how far a
    demonstration's kind shows in its embedding; 0 leaves it to the ledger alone."""
    name = f"ranker {pool} {validation} {test} {seed} {visible}"
    return Workspace.open(copied(path, name, lambda made: _make(made, pool, validation, test, seed, visible)))


def _make(path: Path, pool: int, validation: int, test: int, seed: int, visible: float) -> Workspace:
    rng = random.Random(seed)
    words = [f"word{i}" for i in range(400)]

    def text(topic: int) -> str:
        about = rng.sample([f"topic{topic}term{i}" for i in range(30)], 6)
        return " ".join([*about, *rng.sample(words, 4)])

    def write(name: str, count: int, kinds: Sequence[str], weights: Sequence[float]) -> Path:
        file = path.parent / f"{path.name}-{name}.jsonl"
        rows = []
        for i in range(count):
            topic, kind = rng.randrange(TOPICS), rng.choices(kinds, weights)[0]
            rows.append({"id": f"{kind}-{name}-{i}", "input": text(topic), "output": "yes", "topic": topic})
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return file

    files = [
        write("pool", pool, list(KINDS), list(KINDS.values())),
        *(write(name, count, ["easy", "hard"], [0.5, 0.5]) for name, count in (("val", validation), ("test", test))),
    ]
    workspace = Workspace.create(path)
    index_pool(
        workspace, IndexPlan(paths=(str(files[0]),), validation=(str(files[1]),), test=(str(files[2]),), source="pool")
    )
    _embed(workspace, seed, visible)
    return workspace


def _embed(workspace: Workspace, seed: int, visible: float) -> None:
    rng = np.random.default_rng(seed)
    with workspace.read() as con:
        rows = con.execute("SELECT row, id, metadata FROM demonstrations ORDER BY row").fetchall()
    topics = rng.normal(size=(TOPICS, WIDTH)) / np.sqrt(WIDTH)
    styles = rng.normal(size=(3, WIDTH)) / np.sqrt(WIDTH)
    vectors = np.zeros((len(rows), WIDTH))
    for i, (_, name, metadata) in enumerate(rows):
        kind = name.split("-")[0]
        vectors[i] = topics[json.loads(metadata)["topic"]] + 0.5 * rng.normal(size=WIDTH) / np.sqrt(WIDTH)
        if kind in KINDS:
            vectors[i] += visible * styles[list(KINDS).index(kind)]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    stored = Vectors.create(folder_of(workspace.path, ENCODER), ENCODER, WIDTH)
    numbers = np.array([row for row, _, _ in rows], np.int64)
    stored.write(numbers, vectors.astype(np.float32), content_keys(workspace)[numbers])
    with workspace.read() as con:
        texts = con.execute("SELECT input || chr(10) || output FROM demonstrations ORDER BY row").fetchall()
    whole = Vectors.create(stored.folder / EXAMPLES, ENCODER, WIDTH)  # all outputs are alike
    whole.write(numbers, vectors.astype(np.float32), np.array([text_key(text) for (text,) in texts], np.uint64))


class Scripted(OwnBackend):
    """A backend whose answers are a function of the prompt; it counts what it is asked, and can stop mid-way."""

    def __init__(self, in_flight: int = 64, cancel: CancelToken | None = None, stop_after: int | None = None) -> None:
        self.max_in_flight, self.cancel, self.stop_after = in_flight, cancel, stop_after
        self.asked: list[Prompt] = []

    async def ask(self, requests: Sequence[Request]) -> list[Result]:
        self.asked += [request.prompt for request in requests]
        if self.stop_after is not None and len(self.asked) >= self.stop_after and self.cancel:
            self.cancel.cancel()
        return [Answer(self.answer(r.prompt), tokens_in=self.count_tokens(r.prompt), tokens_out=1) for r in requests]

    def answer(self, prompt: Prompt) -> str:
        kinds = [shot.id.split("-")[0] for shot in prompt.demonstrations]
        balance = kinds.count("helpful") - kinds.count("misleading")
        return "yes" if balance + (0.5 if prompt.query.id.startswith("easy") else -0.5) > 0 else "no"


def with_k(k: int, **changes: Any) -> Settings:
    return replace(SETTINGS, k=k, **changes)
