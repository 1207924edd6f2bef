"""The selector in a process that serves: copied, awaited, and with rows added while it runs."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from factories.copies import indexed, lines
from icl_curate import Selector
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index import build
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.store.workspace import Workspace

QUESTION = "question 3 about topic 3"


@pytest.fixture
def pool(tmp_path: Path) -> Workspace:
    rows = [{"input": f"question {n} about topic {n % 5}", "output": f"answer {n}"} for n in range(20)]
    return indexed(tmp_path / "w", pool=lines(rows))


def shown(selector: Selector, query: str = QUESTION) -> list[tuple[str, float]]:
    return [(each.demonstration.id, each.score) for each in selector.select(query)]


def test_copies_select_the_same(pool: Workspace) -> None:
    selector = Selector(pool, method="bm25", k=3, preselect=7)
    before = shown(selector)
    for other in (pickle.loads(pickle.dumps(selector)), copy.deepcopy(selector), copy.copy(selector)):
        assert (shown(other), other.settings) == (before, selector.settings)


def test_an_event_loop_goes_on(pool: Workspace) -> None:
    selector = Selector(pool, method="bm25", k=3)
    queries = [f"question {n}" for n in range(8)]

    async def all_at_once() -> list[list[str]]:
        found = await asyncio.gather(*map(selector.aselect, queries))
        assert found == await selector.aselect_many(queries)
        return [[each.demonstration.id for each in one] for one in found]

    assert asyncio.run(all_at_once()) == [[name for name, _ in shown(selector, query)] for query in queries]


def test_a_row_added_is_selected_at_once_and_stays(pool: Workspace, tmp_path: Path) -> None:
    selector = Selector(pool, method="bm25", k=1)
    selector.add("a zebra stands in the hall", "yes", id="n1", context="of its own", who="me")
    (found,) = selector.select("what of the zebra?")
    new = found.demonstration
    assert (new.id, new.output, new.source, new.context) == ("n1", "yes", "added", "of its own")
    assert new.metadata == {"who": "me"}
    selector.add("the zebra left", "no", source="desk", count=np.int64(3), day=date(2026, 1, 2))
    everything = Selector(pool, method="bm25", k=30).select("zebra")
    assert {each.demonstration.source for each in everything} == {"added", "desk", "pool"}
    report = index_pool(pool, IndexPlan())
    assert (report.demonstrations, report.added, report.retired) == (22, 0, 0)


def test_an_addition_reads_only_the_latest_of_what_was_added(pool: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "LARGEST_ADDED", 150)  # a line has about 100 bytes
    selector = Selector(pool, method="bm25", k=1)
    for n in range(5):
        selector.add("the same once more", f"label {n % 2}")
    files = sorted(pool.path.glob("added*.jsonl"))
    assert [(file.name, len(file.read_text().splitlines())) for file in files] == [
        ("added-2.jsonl", 2), ("added-3.jsonl", 1), ("added.jsonl", 2),
    ]  # fmt: skip
    with pytest.raises(UsageError, match="was not added"):
        selector.add("another", " ")
    report = index_pool(pool, IndexPlan())
    assert (report.demonstrations, report.added, report.retired) == (25, 0, 0)


def test_a_row_that_is_none_changes_nothing(pool: Workspace) -> None:
    selector = Selector(pool, method="bm25", k=1)
    selector.add("a first one", "yes", id="n1")
    before = (pool.path / "added.jsonl").read_bytes()
    for bad in ({"output": " "}, {"output": "w", "options": ["x", "y"]}, {"output": "twice", "id": "n1"}):
        with pytest.raises(UsageError, match="was not added"):
            selector.add("a bad one", **bad)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        selector.add("a bad one", "x", picture=b"bytes")
    assert (pool.path / "added.jsonl").read_bytes() == before
    assert index_pool(pool, IndexPlan()).demonstrations == 21


def test_a_label_that_no_row_has_would_stand_in_every_prompt(tmp_path: Path) -> None:
    rows = [{"input": f"question {n} about topic {n % 5}", "output": ("yes", "no")[n % 2]} for n in range(20)]
    pool = indexed(tmp_path / "labels", pool=lines(rows))
    selector = Selector(pool, method="bm25", k=1)
    assert selector.task.kind == "labels"
    with pytest.raises(UsageError, match="no row or query has the label 'yess'; did you mean 'yes'") as refused:
        selector.add("a hurried one", "yess")
    assert refused.value.fix == "new_label=True allows it" and not (pool.path / "added.jsonl").exists()
    selector.add("an odd one", "perhaps", new_label=True)
    selector.add("another", "perhaps")
    assert "perhaps" in selector.prompt("an odd one").text


def test_a_template_function_is_taken_as_pools_take_it(pool: Workspace) -> None:
    selector = Selector(pool, method="bm25", k=1, template=in_turns)
    assert selector.settings.template == f"{__name__}:in_turns"
    assert selector.prompt(QUESTION).messages[-1].content == f"asked: {QUESTION}"


def in_turns(query: Mapping[str, str], shots: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"asked: {query['input']}"}]


def test_a_wrong_type_is_said(pool: Workspace) -> None:
    with pytest.raises(UsageError, match="k must be of type int, not 'five'"):
        Selector(pool, k="five")  # type: ignore[arg-type]
    assert Selector(pool, k="5").settings.k == 5  # type: ignore[arg-type]
