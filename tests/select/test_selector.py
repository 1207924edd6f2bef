"""Selection through the one door, against brute force over the sample pool."""

from __future__ import annotations

import json
import math
import pickle
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from icl_curate import Pool, Selector
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.index.questions import read_questions
from icl_curate.engine.pool.records import Query
from icl_curate.engine.retrieval import artefacts
from icl_curate.engine.retrieval.bm25 import tokenise
from icl_curate.engine.select.methods import METHODS
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.demonstrations import active_rows, fetch, groups, queries
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from rank_bm25 import BM25Okapi

UNTRAINED = [name for name, method in METHODS.items() if not method.trained]
TEXTS = ["my parcel still has not come", "I want my money back please", "the pump makes a grinding noise"]


def _rows(selector: Selector, query: str | Query) -> list[int]:
    return [shot.demonstration.row for shot in selector.select(query)]


def _pool(workspace: Workspace) -> tuple[np.ndarray, list[str]]:
    rows = active_rows(workspace)
    return rows, [d.input for d in fetch(workspace, rows)]


@pytest.mark.parametrize("pruned", [(), ("crowd_batch", "helpdesk_team")])
def test_bm25_is_rank_bm25_over_the_active_pool(support: Path, pruned: Sequence[str]) -> None:
    workspace = Workspace.open(support)
    if pruned:
        decide(workspace, "prune", "source", pruned)
    rows, texts = _pool(workspace)
    oracle = BM25Okapi([tokenise(text) for text in texts])
    selector = Selector(workspace, "bm25", 10)
    for text in TEXTS:
        scores = oracle.get_scores(tokenise(text))
        best = np.lexsort((rows, -scores))[:10]
        found = selector.select(text)
        assert [shot.demonstration.row for shot in found] == rows[best].tolist()
        assert [shot.score for shot in found] == pytest.approx(scores[best].tolist(), rel=1e-12)


def test_bm25_plus_is_its_formula_and_a_long_text_with_the_word_comes_first(tmp_path: Path) -> None:
    texts = ["refund " + "about an order of many words " * 80, "my parcel is late", "a card and a card", "where is it"]
    path = tmp_path / "pool.jsonl"
    path.write_text("\n".join(json.dumps({"input": text, "output": "x"}) for text in texts))
    workspace = Workspace.create(tmp_path / "w")
    index_pool(workspace, IndexPlan(paths=(str(path),)))
    words = [tokenise(text) for text in texts]
    mean = sum(map(len, words)) / len(words)

    def score(query: str, own: list[str]) -> float:
        total = 0.0
        for word in tokenise(query):
            if holding := sum(word in each for each in words):
                times, norm = own.count(word), 1.5 * (0.25 + 0.75 * len(own) / mean)
                total += math.log((len(words) + 1) / holding) * (1.0 + times * 2.5 / (norm + times))
        return total

    for query in ("the refund for a card", "nothing of it", "unknown"):
        scores = np.array([score(query, own) for own in words])
        found = Selector(workspace, "bm25-plus", 4).select(query)
        assert [shot.demonstration.row for shot in found] == np.lexsort((np.arange(4), -scores)).tolist()
        assert [shot.score for shot in found] == pytest.approx(sorted(scores, reverse=True))
        assert all(shot.parts == {"bm25-plus": shot.score} for shot in found)


def test_dense_is_the_cosine_of_the_stored_vectors(support: Path) -> None:
    selector = Selector(support, "dense", 10)
    rows, _ = _pool(selector.workspace)
    for query in queries(selector.workspace, "test", 20):
        cosines = selector.view.vectors(rows).astype(np.float64) @ selector.view.embed([query])[0].astype(np.float64)
        assert _rows(selector, query) == rows[np.lexsort((rows, -cosines))[:10]].tolist()


@pytest.mark.parametrize("method", UNTRAINED)
def test_every_method_gives_k_distinct_active_rows_with_reasons(support: Path, method: str) -> None:
    selector = Selector(support, method, 6, preselect=30)
    decide(selector.workspace, "prune", "source", ["community_forum"])
    active = set(active_rows(selector.workspace).tolist())
    asked = queries(selector.workspace, "test", 15)  # those of other tests: token vectors are kept
    for chosen in selector.select_many([*asked, *TEXTS]):
        rows = [shot.demonstration.row for shot in chosen]
        assert len(set(rows)) == len(rows) == (0 if method == "zero" else 6)
        assert set(rows) <= active
        if not METHODS[method].seeded:
            assert all(shot.parts for shot in chosen)
        if method in {"bm25", "dense"}:
            assert [s.score for s in chosen] == sorted((s.score for s in chosen), reverse=True)


@pytest.mark.parametrize("method", UNTRAINED)
def test_a_batch_a_limit_and_an_order_change_no_selection(support: Path, method: str) -> None:
    selector = Selector(support, method, 4, preselect=30)
    asked = queries(selector.workspace, "test", 12)
    together = [[s.demonstration.row for s in chosen] for chosen in selector.select_many(asked)]
    shuffled = random.Random(1).sample(range(12), 12)
    apart = selector.select_many([asked[i] for i in shuffled])
    for place, i in enumerate(shuffled):
        assert [s.demonstration.row for s in apart[place]] == together[i]
    fresh = Selector(support, method, 4, preselect=30)
    assert _rows(fresh, asked[3]) == together[3]


@pytest.mark.parametrize("method", [name for name in UNTRAINED if name != "zero"])
def test_a_query_never_gets_itself_or_its_near_duplicate(support: Path, method: str) -> None:
    selector = Selector(support, method, 8, preselect=30)
    group = groups(selector.workspace)
    rows, texts = _pool(selector.workspace)
    repeated = [i for i, row in enumerate(rows) if (group == group[row]).sum() > 1][:5]
    assert repeated
    for i in repeated:
        same = set(np.flatnonzero(group == group[rows[i]]).tolist())
        assert not same & set(_rows(selector, Query(texts[i], row=int(rows[i]))))  # asked as the row it is
        assert not same & set(_rows(selector, texts[i]))  # asked as text by somebody who does not know the pool
        assert not same & set(_rows(selector, texts[i].upper() + " !"))  # and in a slightly different hand


def test_random_depends_on_the_seed_and_on_nothing_else(support: Path) -> None:
    selector = Selector(support, "random", 5)
    asked = queries(selector.workspace, "test", 30)
    first, second = selector.picks(asked, seed=1), selector.picks(asked, seed=2)
    assert selector.picks(asked, seed=1) == first
    assert sum(a != b for a, b in zip(first, second, strict=True)) > 25
    counts = np.bincount([pick.row for chosen in selector.picks(asked * 1, seed=3) for pick in chosen])
    assert counts.max() <= 5  # 150 draws over 1,200 rows


def test_a_record_is_selected_for_as_its_text_and_not_without_what_was_judged(support: Path) -> None:
    own = Settings(method="bm25", k=3, template="own", template_text="{{ query.tier }}: {{ query.input }}")
    selector = Selector(support, settings=own)
    with pytest.raises(UsageError, match="preselect is given beside settings"):
        Selector(support, settings=own, preselect=3)
    assert selector.prompt({"input": TEXTS[0], "tier": "gold"}).text == f"gold: {TEXTS[0]}"
    for chosen in (selector, pickle.loads(pickle.dumps(selector))):
        shots = chosen.select({"input": TEXTS[0], "tier": "gold"})
        assert shots == Selector(support, "bm25", 3).select(TEXTS[0])
        for asked in (TEXTS[0], Query(TEXTS[0]), {"input": TEXTS[0], "tier": None}):
            with pytest.raises(UsageError, match="no field 'tier'"):
                chosen.select_many([asked])


def test_queries_have_the_fields_of_their_rows(tmp_path: Path) -> None:
    rows = [
        {"input": f"q {n}", "output": "a", "tier": {"n": n}, "rationale": "so", "split": split}
        for n, split in enumerate(("pool", "test", "validation"))
    ]
    (tmp_path / "pool.jsonl").write_text("\n".join(map(json.dumps, rows)))
    workspace = Workspace.create(tmp_path / "w")
    index_pool(workspace, IndexPlan(paths=(str(tmp_path / "pool.jsonl"),)))
    assert [query.fields for query in queries(workspace, "test")] == [{"tier": {"n": 1}}]
    (shot,) = fetch(workspace, active_rows(workspace))
    assert shot.fields == {"tier": {"n": 0}, "rationale": "so"}
    assert [one.query.fields for one in read_questions([str(tmp_path / "pool.jsonl")]).asked] == [
        {"tier": {"n": n}} for n in range(3)
    ]


def test_more_shots_than_the_pool_holds_is_a_shorter_list(tmp_path: Path) -> None:
    pool = tmp_path / "p.jsonl"
    pool.write_text(
        "\n".join(f'{{"input": "question number {word}", "output": "{word}"}}' for word in ["one", "two", "three"])
    )
    workspace = Workspace.create(tmp_path / "w")
    index_pool(workspace, IndexPlan(paths=(str(pool),), encoder=None))
    for method in ("bm25", "random"):
        assert len(Selector(workspace, method, 50).select("which number")) == 3


@pytest.mark.parametrize("query", ["", " \n"])
def test_an_empty_query_is_refused(support: Path, query: str) -> None:
    with pytest.raises(UsageError, match="the query is empty"):
        Selector(support, method="bm25").select(query)


@pytest.mark.parametrize(
    "queries", [TEXTS[0], {"input": TEXTS[0]}, Query(TEXTS[0]), None, 3, pandas.DataFrame({"input": TEXTS})]
)
def test_what_is_no_list_of_queries_is_refused(support: Path, queries: Any) -> None:
    with pytest.raises(UsageError, match="not a list"):
        Selector(support, method="bm25").select_many(queries)


@pytest.mark.parametrize("query", [None, 3, Query(None), Query(3), Query(" ")])  # type: ignore[arg-type]
def test_what_is_no_query_is_refused(support: Path, query: Any) -> None:
    with pytest.raises(UsageError, match="query is"):
        Selector(support, method="bm25").select(query)
    with pytest.raises(UsageError, match="query is"):
        Pool(support).preview(query, method="bm25")


def test_an_empty_pool_and_missing_vectors_say_what_to_run(tmp_path: Path) -> None:
    pool = tmp_path / "p.jsonl"
    pool.write_text('{"input": "a question", "output": "b", "source": "s"}')
    workspace = Workspace.create(tmp_path / "w")
    with pytest.raises(UsageError, match="empty"):
        Selector(workspace, "bm25").select("x")
    index_pool(workspace, IndexPlan(paths=(str(pool),), encoder=None))
    with pytest.raises(UsageError, match="no vectors") as caught:
        Selector(workspace, "dense").select("x")
    assert "icl-curate index" in caught.value.fix
    decide(workspace, "prune", "source", ["s"])
    with pytest.raises(UsageError, match="empty"):
        Selector(workspace, "bm25").select("x")


@pytest.mark.parametrize("pruned", [(), ("crowd_batch", "helpdesk_team")])
def test_large_pools_are_searched_by_codes_with_the_same_result(
    support: Path, monkeypatch: pytest.MonkeyPatch, pruned: Sequence[str]
) -> None:
    workspace = Workspace.open(support)
    if pruned:
        decide(workspace, "prune", "source", pruned)
    asked = [*queries(workspace, "test", 20), *(Query(text) for text in TEXTS)]

    def chosen() -> list[list[tuple[int, float]]]:
        found = (Selector(workspace, method, 6) for method in ("dense", "dpp", "set-bsr"))
        return [[(s.demonstration.row, s.score) for s in shots] for each in found for shots in each.select_many(asked)]

    expected = chosen()
    monkeypatch.setattr(artefacts, "CODED_FROM", 1)
    assert chosen() == expected
    assert [*support.glob("vectors/*/codes.i8")]


def test_diverse_methods_choose_from_the_nearest_and_differ_from_them(support: Path) -> None:
    dense = Selector(support, "dense", 30, preselect=30)
    asked = queries(dense.workspace, "test", 20)
    near = [{s.demonstration.row for s in chosen} for chosen in dense.select_many(asked)]
    for method in ("dpp", "set-bsr"):
        chosen = [
            [s.demonstration.row for s in c] for c in Selector(support, method, 6, preselect=30).select_many(asked)
        ]
        assert all(set(rows) <= around for rows, around in zip(chosen, near, strict=True))
        top = [[s.demonstration.row for s in c] for c in Selector(support, "dense", 6).select_many(asked)]
        assert chosen != top


def test_a_process_that_goes_on_gives_what_a_new_one_gives(support: Path) -> None:
    selector = Selector(support, "bm25", 5)
    asked = queries(selector.workspace, "validation", 40)
    for pruned in ((), ("crowd_batch",)):
        if pruned:
            decide(selector.workspace, "prune", "source", pruned)
            selector.refresh()
        found = [selector.select(query) for query in asked]
        assert selector.view.indexes.texts._held is not None
        assert found == Selector(support, "bm25", 5).select_many(asked)
