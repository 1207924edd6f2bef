"""A pool half of which teaches a wrong answer, and an LLM that says what most demonstrations say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from icl_curate.engine.base.progress import CancelToken
from icl_curate.engine.curate.curation import Curation, CurationPlan
from icl_curate.engine.curate.plan import CurationReport
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Answer, Request, Result
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace

from factories.asked_world import ENCODER, make_world, texts
from factories.backends import OwnBackend
from factories.copies import copied, made_once

SETTINGS = Settings(encoder=ENCODER, llm="scripted", device="cpu", k=3, method="bm25")
PRICED = replace(SETTINGS, price_in=1.0, price_out=1.0)
QUERIES = 60


class Gullible(OwnBackend):
    """Says what most demonstrations in the prompt say; stops by its token after so many answers."""

    spec, max_in_flight = "gullible", 16

    def __init__(self, token: CancelToken | None = None, stop_after: int | None = None) -> None:
        self.token, self.stop_after = token, stop_after
        self.asked: list[str] = []

    def identity(self) -> Mapping[str, Any]:
        return {"backend": "gullible"}

    def _answer(self, request: Request) -> Result:
        text = request.prompt.text
        self.asked.append(text)
        if self.token and len(self.asked) == self.stop_after:
            self.token.cancel()
        says = "yes" if text.count("yes") > text.count("wrong") else "wrong"
        return Answer(says, tokens_in=self.count_tokens(request.prompt), tokens_out=1)


def make_gullible_world(path: Path) -> Workspace:
    """120 rows, those of one source wrong, and `QUERIES` validation queries."""
    return Workspace.open(copied(path, "gullible", _index))


def make_held_world(path: Path) -> Workspace:
    """The same, with a run of `curate` of 600 calls whose confirmed pruning waits for an answer; its settings are those
    of the workspace."""
    return Workspace.open(copied(path, "held", _hold))


def whole_curation() -> CurationReport:
    """What `curate` of 600 calls comes to at once, for those who come to it another way."""
    made = made_once("whole curation", lambda folder: _curate(folder / "w"))
    return CurationReport.from_json(json.loads((made / "report.json").read_text(encoding="utf-8")))


def _curate(path: Path) -> None:
    client = LLMClient(make_gullible_world(path), Gullible(), SETTINGS)
    done = Curation.prepare(client, CurationPlan(max_calls=600)).ask(Budget(600))
    (path.parent / "report.json").write_text(json.dumps(done.as_json()), encoding="utf-8")


def _hold(path: Path) -> None:
    workspace = make_gullible_world(path)
    (path / "config.toml").write_text('llm = "gullible"\nmethod = "bm25"\nk = 3\n')
    client = LLMClient(workspace, Gullible(), SETTINGS)
    Curation.prepare(client, CurationPlan(max_calls=600, hold=True)).ask(Budget(600))


def _index(path: Path) -> None:
    said = texts(180, 3)
    pool = [
        {"id": f"p-{i}", "input": text, "output": "wrong", "source": "bad"}
        if i % 2
        else {"id": f"p-{i}", "input": text, "output": f"yes {i}", "source": f"good-{i % 3}"}
        for i, text in enumerate(said[:120])
    ]
    asked = [{"id": f"q-{i}", "input": text, "output": "yes"} for i, text in enumerate(said[120:])]
    workspace = make_world(path, pool, asked)
    with workspace.write() as con:
        con.execute("UPDATE demonstrations SET split = 'validation' WHERE split = 'test'")
