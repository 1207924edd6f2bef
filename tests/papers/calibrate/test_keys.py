"""Relevant documents tagged or not, in four places: where they stand, what is asked, what is reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from factories.calibrate_world import CAPITAL, SETTINGS, Scripted, workspace_of
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Answer, Failure, Request, Result
from icl_curate.engine.papers.calibrate.documents import queries_of
from icl_curate.engine.papers.calibrate.keys import MEANING, PLACES, KeyAblation, KeyReport, placed
from icl_curate.engine.papers.calibrate.prompts import Case, Document
from icl_curate.engine.pool.records import Query


class Follower(Scripted):
    """Answers from the tagged document, and without tags from the last one; refuses one of the prompts."""

    def _answer(self, request: Request) -> Result:
        text = request.prompt.text
        blocks = [block for block in text.split("\n\n") if block.startswith("Document [")]
        if "<KEY>" in text:
            return Answer("Oslo" if any("<KEY> Norway" in block for block in blocks) else "none")
        if "Norway" in blocks[0]:
            return Failure("refusal", "no")
        return Answer("Oslo" if "Norway" in blocks[-1] else "Rome")


def test_tags_in_four_places(tmp_path: Path) -> None:
    bare = {"id": "bare", "input": "Who?", "output": "nobody", "context": "One.\n\nTwo."}
    workspace = workspace_of(tmp_path / "w", [CAPITAL, bare])
    backend = Follower({})
    ready = KeyAblation.prepare(
        LLMClient(workspace, backend, SETTINGS), queries_of(workspace, "validation"), "validation"
    )
    assert ready.left_out == 1
    # two of the untagged prompts or of the tagged ones may show the same order
    assert ready.cost().requests == 8
    done = ready.ask(Budget())
    assert [(row.place, row.tagged) for row in done.places] == [(p, t) for p in PLACES for t in (False, True)]
    assert [row.accuracy for row in done.places if row.tagged] == [1.0] * 4
    by_place = {row.place: row for row in done.places if not row.tagged}
    assert [by_place[place].accuracy for place in ("start", "middle", "end")] == [0.0, 0.0, 1.0]
    assert by_place["start"].failures == 1
    gains = {row.place: row.versus.difference for row in done.places if row.versus}
    assert (gains["start"], gains["end"]) == (1.0, 0.0)
    tagged = next(r.prompt for r in backend.asked if "<KEY> Norway" in r.prompt.text)
    assert tagged.messages[0].content.endswith(f"and nothing else.\n{MEANING}")
    assert tagged.text.count("<KEY>") == 2
    assert KeyReport.from_json(json.loads(json.dumps(done.as_json()))) == done
    with pytest.raises(UsageError, match="none of the validation queries"):
        KeyAblation.prepare(
            LLMClient(workspace, backend, SETTINGS), queries_of(workspace, "validation")[1:], "validation"
        )


def test_where_documents_stand() -> None:
    documents = tuple(Document(name, name, name in "xy") for name in "axbycd")
    case = Case(Query("q", id="q"), documents, "documents")
    order = {place: "".join(document.id for document in placed(case, place, 0).documents) for place in PLACES}
    assert [order[place] for place in ("start", "middle", "end")] == ["xyabcd", "abxycd", "abcdxy"]
    assert sorted(order["random"]) == sorted("axbycd")
    others = {"".join(document.id for document in placed(case, "random", seed).documents) for seed in range(5)}
    assert len(others) > 1
    assert placed(case, "end", 0).query.context == "a\n\nb\n\nc\n\nd\n\nx\n\ny"
