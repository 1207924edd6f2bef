"""Queries with documents and an LLM whose every answer and probability is written down."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from icl_curate.engine.base.progress import CancelToken
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.llm.types import Answer, Capabilities, Failure, Request, Result
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace

from factories.backends import OwnBackend
from factories.copies import copied

SETTINGS = Settings(llm="scripted", device="cpu", method="bm25")

CAPITAL = {
    "id": "capital",
    "input": "What is the capital of Norway?",
    "output": "Oslo",
    "context": "Italy\nRome is its capital.\n\nNorway\nOslo is its capital.\n\nBergen rains.",
}
COUNT = {"id": "count", "input": "How many legs?", "output": "five", "context": "Six feet.\n\nFive legs."}

ScriptedAnswer = tuple[str, float]
"""An answer and its probability."""


def workspace_of(
    path: Path, validation: Sequence[Mapping[str, Any]] = (CAPITAL, COUNT), pool: Sequence[Mapping[str, Any]] = ()
) -> Workspace:
    """An index without vectors."""
    files = {"pool": pool or [{"input": "a", "output": "b"}, {"input": "c", "output": "d"}], "validation": validation}
    texts = {name: "".join(json.dumps(row) + "\n" for row in rows) for name, rows in files.items()}
    digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()

    def index(folder: Path) -> None:
        for name, text in texts.items():
            (folder.parent / f"{name}.jsonl").write_text(text)
        places = [str(folder.parent / f"{name}.jsonl") for name in texts]
        index_pool(Workspace.create(folder), IndexPlan(paths=(places[0],), validation=(places[1],)))

    return Workspace.open(copied(path, f"calibrate {digest[:16]}", index))


def case_of(prompt: Prompt) -> tuple[str, int, int]:
    """Query id, documents shown, earlier answers shown."""
    return prompt.query.id, prompt.text.count("Document ["), prompt.text.count("\nRound ")


class Scripted(OwnBackend):
    """Answers from ``script``: by (query id, the one document's first word) for a document alone, else by (query id,
    number of earlier answers). Two tokens each, of equal probability."""

    def __init__(
        self,
        script: Mapping[tuple[str, object], ScriptedAnswer],
        logprobs: bool = True,
        cancel: CancelToken | None = None,
        stop_after: int | None = None,
    ) -> None:
        self.script, self.logprobs, self.cancel, self.stop_after = script, logprobs, cancel, stop_after
        self.capabilities = Capabilities(logprobs=logprobs, scoring=False)
        self.asked: list[Request] = []

    async def ask(self, requests: Sequence[Request]) -> list[Result]:
        self.asked += requests
        if self.cancel and self.stop_after is not None and len(self.asked) >= self.stop_after:
            self.cancel.cancel()
        return await super().ask(requests)

    def _answer(self, request: Request) -> Result:
        query, documents, earlier = case_of(request.prompt)
        key: object = earlier
        if documents == 1:
            key = request.prompt.text.split("Document [1]: ")[1].split()[0]
        found = self.script.get((query, f"sample {request.sampling.repeat}")) if request.sampling.repeat else None
        found = found or self.script.get((query, key))
        if found is None:
            return Failure("request", f"nothing is written for {query}, {key}")
        text, probability = found
        logprobs = (math.log(probability) / 2,) * 2 if self.logprobs else ()
        return Answer(text, tokens=("a", "b")[: len(logprobs)], logprobs=logprobs, tokens_in=10, tokens_out=2)


SCRIPT: Mapping[tuple[str, object], ScriptedAnswer] = {
    ("capital", 0): ("Rome", 0.4),
    ("capital", "Italy"): ("Rome", 0.2),
    ("capital", "Norway"): ("Oslo", 0.9),
    ("capital", "Bergen"): ("unknown", 0.5),
    ("capital", 1): ("Oslo", 0.7),
    ("capital", 2): ("Oslo", 0.85),
    ("capital", 3): ("Bergen", 0.1),
    ("count", 0): ("five", 0.8),
    ("count", "Six"): ("six", 0.5),
    ("count", "Five"): ("five", 0.5),
    ("count", 1): ("five", 0.8),
    ("count", 2): ("six", 0.7),
    ("count", 3): ("five", 0.6),
}
