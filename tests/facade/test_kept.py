"""Rows from memory are kept in the workspace, and nothing but an index that succeeds replaces them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from icl_curate import Pool
from icl_curate.engine.base.errors import CurateError, UsageError
from icl_curate.engine.index import build
from icl_curate.facade import kept

MAP = {"input": "subject", "output": "team"}
TEAMS = ("delivery", "refund")


def rows(count: int, word: str = "parcel") -> list[dict[str, Any]]:
    return [{"id": f"{word} {i}", "subject": f"{word} number {i}", "team": TEAMS[i % 2]} for i in range(count)]


def index(data: Any, folder: Path, **options: Any) -> Pool:
    return Pool.index(data, folder, **{"map": MAP, "encode": False, "progress": False} | options)


def files(folder: Path) -> dict[str, str]:
    """The files of rows in a workspace."""
    return {path.name: path.read_text() for path in (folder / "data").iterdir()}


def _interrupted(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("case", ["dry run", "map", "no rows", "empty", "interrupted"])
def test_what_was_not_indexed_changes_no_rows(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = index(rows(6), tmp_path / "w", validation=rows(2, "query"))
    before = files(tmp_path / "w")
    other, queries = rows(4, "pump"), rows(3, "question")
    if case == "dry run":
        dry = index(other, tmp_path / "w", validation=queries, dry_run=True)
        assert (dry.indexed.added, dry.indexed.retired) == (7, 8)
    elif case == "map":
        with pytest.raises(UsageError):
            index(other, tmp_path / "w", validation=queries, map={"input": "subjekt", "output": "team"})
    elif case == "no rows":
        with pytest.raises(UsageError, match="a row is of type int"):
            index([*other, 7], tmp_path / "w", validation=queries)
    elif case == "empty":
        with pytest.raises(UsageError, match="is empty"):
            index(iter([]), tmp_path / "w", validation=queries)
    else:
        with monkeypatch.context() as patched:
            patched.setattr(build, "index_pool", _interrupted)
            with pytest.raises(KeyboardInterrupt):
                index(other, tmp_path / "w", validation=queries)
    assert files(tmp_path / "w") == before
    assert index((), tmp_path / "w").rows() == pool.rows()
    assert len(index(other, tmp_path / "w").rows()) == 4
    assert files(tmp_path / "w").keys() == before.keys()


def test_rows_that_were_indexed_stay_if_their_vectors_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index(rows(4), tmp_path / "w")
    monkeypatch.setattr(build.artefacts, "encode", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        index(rows(6), tmp_path / "w", encode=True)
    assert len(index((), tmp_path / "w").rows()) == 6


def test_after_a_killed_call_the_next_one_finds_the_rows(tmp_path: Path) -> None:
    index(rows(6), tmp_path / "w")
    file = tmp_path / "w" / "data" / "pool.jsonl"
    file.rename(file.with_name(f"pool.jsonl{kept.BEFORE}"))
    file.write_text("")
    index(rows(2, "other"), tmp_path / "w", source="other")
    assert len(file.read_text().splitlines()) == 6 and len(files(tmp_path / "w")) == 2


def test_a_new_workspace_goes_again_with_an_error(tmp_path: Path) -> None:
    for wrong in ({"map": {"input": "nothing"}}, {"k": "many"}):
        with pytest.raises(CurateError):
            index(rows(4), tmp_path / "new", **wrong)
        assert not (tmp_path / "new").exists()
    assert len(index(rows(4), tmp_path / "new").rows()) == 4
    with pytest.raises(CurateError):
        index(rows(4), tmp_path / "new", map={"input": "nothing"})
    assert len(Pool(tmp_path / "new").rows()) == 4


def test_sources_and_queries_have_files_of_their_own(tmp_path: Path) -> None:
    for source in ("validation", "test"):
        pool = index(rows(4, source), tmp_path / "w", source=source, validation=rows(2, "query"))
        assert [query.id for query in pool.queries()] == ["query 0", "query 1"]
    assert sorted({row["source"] for row in pool.rows()}) == ["test", "validation"] and len(pool.rows()) == 8
    assert len(index(rows(3, "test"), tmp_path / "w", source="test").rows()) == 7
    long = index(rows(3, "long"), tmp_path / "w", source="s/" * 120)
    assert len(long.rows(sources="s/" * 120)) == 3


def test_rows_of_an_earlier_release_keep_their_file(tmp_path: Path) -> None:
    index(rows(4), tmp_path / "w")
    file = tmp_path / "w" / "data" / "validation.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows(3, "old")))
    index(file, tmp_path / "w", source="validation")
    pool = index(rows(2, "old"), tmp_path / "w", source="validation", validation=rows(2, "query"))
    assert len(pool.rows(sources="validation")) == 2 and len(pool.queries()) == 2
    assert len(file.read_text().splitlines()) == 2


def test_watched_rows_are_not_stored(tmp_path: Path) -> None:
    pool = index(rows(6), tmp_path / "w", source="watched", encode=True)
    before = files(tmp_path / "w")
    assert pool.watch(rows(3, "question"), map={"input": "subject"}).as_json()["kind"]
    assert files(tmp_path / "w") == before
    assert not [*(tmp_path / "w" / "tmp").rglob("*watched*")]
