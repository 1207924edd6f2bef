"""`Pool`: what the commands do, in Python, against the commands themselves."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import duckdb
import icl_curate
import pandas
import pyarrow
import pytest
from factories.commands import SAMPLE, Run
from factories.own_code import Make, modules
from factories.servers import Server
from icl_curate import Pool
from icl_curate.cli import PANELS
from icl_curate.engine.base.errors import Cancelled, NoWorkspaceError, UsageError
from icl_curate.engine.base.progress import Event, Monitor, stoppable
from icl_curate.engine.store.demonstrations import verified_queries
from icl_curate.facade.plots import plot
from icl_curate.render import progress
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

ROWS = [
    {"id": "a", "input": "my parcel is late", "output": "delivery", "source": "mail", "score": 1.5},
    {"id": "b", "input": "refund my money", "output": "refund", "source": "mail", "score": None},
    {"id": "c", "input": "where is my parcel", "output": "delivery", "source": "chat", "score": 3.0},
    {"id": "d", "input": "the refund has not come", "output": "refund", "source": "chat", "score": 4.0},
]
QUERIES = [
    {"id": "q1", "input": "is my parcel lost", "output": "delivery"},
    {"id": "q2", "input": "money back please", "output": "refund"},
]
TEST = [
    {"id": "t1", "input": "the parcel never came", "output": "delivery"},
    {"id": "t2", "input": "I want a refund for the pump", "output": "refund"},
]
FRAMES: dict[str, Callable[[], Any]] = {
    "mappings": lambda: ROWS,
    "iterator": lambda: iter(ROWS),
    "pandas": lambda: pandas.DataFrame(ROWS),
    "pyarrow": lambda: pyarrow.Table.from_pylist(ROWS),
    "duckdb": lambda: duckdb.sql(
        "SELECT * FROM (VALUES "
        + ", ".join(
            f"('{row['id']}', '{row['input']}', '{row['output']}', '{row['source']}', {row['score'] or 'NULL'}::DOUBLE)"
            for row in ROWS
        )
        + ") AS t(id, input, output, source, score)"
    ),
}


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    yield from modules(tmp_path / "code", monkeypatch)


@pytest.fixture
def small(tmp_path: Path) -> Pool:
    return Pool.index(ROWS, tmp_path / "w", validation=QUERIES, test=TEST, encode=False, progress=False)


@pytest.mark.parametrize("kind", FRAMES)
def test_rows_of_any_frame_are_those_of_the_file(kind: str, tmp_path: Path, run: Run) -> None:
    pool = Pool.index(FRAMES[kind](), tmp_path / "w", encode=False, progress=False)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert run("index", tmp_path / "rows.jsonl", "-w", tmp_path / "by-command", "--no-encode").code == 0
    assert pool.rows() == Pool(tmp_path / "by-command").rows()
    assert [row.get("score") for row in pool.rows()] == [row["score"] for row in ROWS]


def test_labels_of_a_data_set_get_their_names(tmp_path: Path) -> None:
    class DataSet(list[dict[str, Any]]):
        """As `datasets.Dataset` shows itself."""

        column_names = ("text", "label")
        features: ClassVar = {
            "text": SimpleNamespace(dtype="string"),
            "label": SimpleNamespace(names=["refund", "delivery"]),
        }

    told = DataSet([{"text": "my parcel is late", "label": 1}, {"text": "refund my money", "label": 0}])
    rows = Pool.index(told, tmp_path / "w", encode=False, progress=False).rows()
    assert [(row["input"], row["output"]) for row in rows] == [
        ("my parcel is late", "delivery"), ("refund my money", "refund"),
    ]  # fmt: skip


def test_names_of_labels_are_a_list_or_a_text(tmp_path: Path) -> None:
    rows = [{"input": "my parcel is late", "output": 1}, {"input": "refund my money", "output": 0}]
    for labels in ("refund, delivery", ["refund", "delivery"]):
        pool = Pool.index(rows, tmp_path / "w", labels=labels, encode=False, progress=False)
        assert [row["output"] for row in pool.rows()] == ["delivery", "refund"]


def test_rows_come_back_as_they_left(small: Pool, tmp_path: Path) -> None:
    again = Pool.index(small.to_pandas(), tmp_path / "again", encode=False, progress=False)
    assert again.rows() == small.rows()
    odd = Pool.index([*ROWS, {"input": "x", "output": "y", "context": "p", "only": 1}], tmp_path / "odd", encode=False)
    assert odd.to_arrow().column_names == [*odd.to_pandas().columns]  # not those of the first row alone
    for frame in (odd.to_arrow(), odd.to_pandas()):
        assert Pool.index(frame, tmp_path / "again", encode=False, progress=False).rows() == odd.rows()
    assert [row["id"] for row in small.rows("test")] == ["t1", "t2"]
    small.prune(["a"])
    assert list(small.to_pandas()["id"]) == ["b", "c", "d"]


def test_a_field_of_several_types_is_named_where_a_column_has_one(tmp_path: Path) -> None:
    rows = [{"input": f"text {i}", "output": "y", "n": i or 0.5, "year": year} for i, year in enumerate([2.5, "two"])]
    pool = Pool.index(rows, tmp_path / "w", encode=False, progress=False)
    with pytest.raises(UsageError, match=r"^year cannot be a column of one type: ") as refused:
        pool.to_arrow()
    assert "pool.to_pandas()" in refused.value.fix
    assert list(pool.to_pandas()["year"]) == [2.5, "two"]


OWN: list[dict[str, Any]] = [
    {"metadata": {"k": 1}},
    {"metadata": "a text"},
    {"metadata": {"source": "web"}, "lang": "de"},
    {"metadata": {}},
    {"metadata": {"lang": "de"}, "lang": "en"},
    {"split": "fold1", "metadata": {"split": "fold2"}},
    {},
]
"""Fields of rows, whose names are also those of columns that an export has."""


@pytest.mark.parametrize("own", OWN)
def test_fields_of_any_name_come_back_from_memory(tmp_path: Path, own: dict[str, Any]) -> None:
    full = {"id": "full", "input": "x", "output": "y", "source": "s", **own}
    rows = [full, {"id": "no source", "input": "v", "output": "w", **own}, {"id": "b", "input": "z", "output": "y"}]
    pool = Pool.index(rows, tmp_path / "w", encode=False, progress=False)
    for n, left in enumerate([pool.rows(), pool.to_pandas(), pool.to_arrow()]):
        again = Pool.index(left, tmp_path / f"again {n}", encode=False, progress=False)
        assert again.rows() == pool.rows()
        assert Pool.index(again.rows(), tmp_path / f"again {n}", encode=False, progress=False).rows() == pool.rows()
    metadata = pool.demonstration("full").metadata
    assert {*own} <= {*metadata} or metadata == {**{k: v for k, v in own.items() if k != "metadata"}, **own["metadata"]}


def test_what_holds_no_rows_is_refused(tmp_path: Path) -> None:
    for data in ({"input": ["a"]}, 7, [1, 2]):
        with pytest.raises(UsageError, match=r"rows|of type"):
            Pool.index(data, tmp_path / "w", progress=False)
    for data in ([], iter(())):
        with pytest.raises(UsageError, match="is empty"):
            Pool.index(data, tmp_path / "w", progress=False)
    with pytest.raises(NoWorkspaceError):
        Pool(tmp_path / "nothing")
    with pytest.raises(UsageError, match="unknown setting 'shots'"):
        Pool.index(ROWS, tmp_path / "w2", shots=4)


def test_an_error_says_what_to_give_in_python(small: Pool, support: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        Pool.index([{"message": "my parcel is late", "team": "delivery"}], tmp_path / "w2", progress=False)
    assert 'map={"input": "message", "output": "team"}' in refused.value.fix and "--map" not in refused.value.fix
    assert refused.value.__notes__ == [f"fix: {refused.value.fix}"]
    for call, fix in (
        (lambda: small.curate(), "give max_calls=1000, or max_cost with prices"),
        (lambda: Pool(support).relabel({"hd-0001": "brand_new"}), "add new=True to use a new one"),
        (lambda: [small.report(tmp_path / "page.md") for _ in range(2)], "overwrite it with force=True"),
        (lambda: [small.export(tmp_path / "out.jsonl") for _ in range(2)], "or overwrite it with force=True"),
        (lambda: small.rows("train"), "one of: pool, validation, test"),  # type: ignore[arg-type]
        (lambda: small.evaluate(split="train"), "one of: pool, validation, test"),
        (lambda: small.evaluate(shots=3), "EvaluationPlan has as_indexed, by, confusion"),
        (lambda: small.select(["a", "b"]), 'give {"input": "a question"}'),  # type: ignore[arg-type]
    ):
        with pytest.raises(UsageError) as refused:
            call()
        assert fix in refused.value.fix


def test_columns_of_pandas_name_rows(small: Pool) -> None:
    frame = small.to_pandas()
    assert small.prune(frame.id[frame.source == "mail"]).targets == ("a", "b")
    assert [row["id"] for row in small.rows(sources="chat")] == ["c", "d"]
    assert small.restore(sources=frame.source.unique()[:1], dry_run=True).targets == ("mail",)


def test_the_attributes_of_a_result_are_completed(small: Pool) -> None:
    assert {"pool", "active", "next_step", "as_json", "to_pandas"} <= {*dir(small.status())}


def test_a_source_of_any_name_stays_in_the_workspace(tmp_path: Path) -> None:
    source = "../../team/2024 é"
    pool = Pool.index([{"input": "a b", "output": "c"}], tmp_path / "w", source=source, encode=False, progress=False)
    assert [row["source"] for row in pool.rows()] == [source]
    assert [path.name for path in (tmp_path / "w" / "data").iterdir()] == ["..%2F..%2Fteam%2F2024%20%C3%A9.jsonl"]


def test_known_files_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS[:2]))
    Pool.index(path, tmp_path / "w", encode=False, progress=False)
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert len(Pool.index(workspace=tmp_path / "w", encode=False, progress=False).rows()) == 4


def _without_times(told: dict[str, Any]) -> dict[str, Any]:
    """The object less what two runs of the same differ in."""
    told = {key: value for key, value in told.items() if key not in ("schema_version", "run", "dry_run")}
    for one in told.get("methods", {}).values():
        del one["selection_ms"], one["cached_calls"]
    return told


def test_an_evaluation_is_that_of_the_command(support: Path, run: Run) -> None:
    pool = Pool(support, progress=False)
    options = {"seeds": 1, "limit": 20, "k": 3}
    cost = pool.evaluate(["zero", "dense"], dry_run=True, **options)
    words = ("evaluate", "-w", support, "-m", "zero,dense", "--seeds", 1, "--limit", 20, "-k", 3, "--json")
    assert _without_times(cost.as_json()) == _without_times(run(*words, "--dry-run").json)
    assert cost.plan.to_ask == 40 and pool.status().calls == {}
    done = pool.evaluate(["zero", "dense"], **options)
    assert _without_times(done.as_json()) == _without_times(run(*words).json)
    frame = done.to_pandas()
    assert list(frame.index) == ["zero", "dense"]
    assert frame.accuracy["dense"] == done.methods["dense"].accuracy
    sweep = pool.evaluate(["dense"], sweep="k=0,2", seeds=1, limit=20)
    assert [point["k"] for point in sweep.as_json()["points"]] == [0, 2]
    told = sweep.as_json()
    told["points"][0]["methods"]["dense"] |= {"accuracy": None, "ci95": None}  # no prompt got an answer
    assert [len(line.get_xdata()) for line in plot(told, _axes()).get_lines()[:1]] == [1]


def test_settings_hold_for_the_pool_or_for_a_call(small: Pool) -> None:
    pool = Pool(small.workspace.path, k=1, method="bm25", progress=False)
    assert len(pool.select("my parcel")) == 1
    assert len(pool.select("my parcel", k=2)) == 2
    assert len(pool.select("my parcel")) == 1
    assert pool.prompt("my parcel").messages[-1].content.count("my parcel") == 1
    with pytest.raises(UsageError, match="unknown option 'limits'; did you mean 'limit'"):
        pool.evaluate(limits=3)


def test_another_process_gets_a_pool_of_its_own(small: Pool) -> None:
    given = Pool(small.workspace.path, k=3, method="bm25", progress=False)
    given.select("my parcel")
    sent = pickle.loads(pickle.dumps(given))
    assert (sent.rows(), sent.settings(), sent.progress) == (given.rows(), given.settings(), False)
    assert sent.workspace is not given.workspace


def test_a_selector_is_kept_until_the_pool_or_the_settings_change(small: Pool) -> None:
    pool = Pool(small.workspace.path, method="bm25", progress=False)
    first = pool.selector()
    assert pool.selector() is first
    assert pool.selector(k=1) is not first
    pool.prune("a")
    assert [shot.demonstration.id for shot in pool.select("my parcel is late", k=1)] == ["c"]


def test_an_llm_elsewhere_is_asked_within_a_limit_only(small: Pool) -> None:
    with Server() as server:
        asked = {"llm": "openai:stub", "base_url": server.url, "methods": ["zero"]}
        with pytest.raises(UsageError, match=r"no limit is set, and this asks 2 calls to stub at http") as refused:
            small.evaluate(**asked)
        assert "max_calls" in refused.value.fix
        assert not server.calls  # nor a probe
        assert small.evaluate(max_calls=20, **asked).as_json()["methods"]["zero"]["calls"] == 2


def test_decisions_are_made_and_undone(small: Pool) -> None:
    assert small.prune(sources="mail", reason="old").targets == ("mail",)
    assert [row["id"] for row in small.rows()] == ["c", "d"]
    assert small.history()[0].reason == "old"
    assert small.undo().active_after == 4
    assert small.redo().active_after == 2 and small.undo().active_after == 4
    small.save_version("first")
    small.relabel({"a": "refund"})
    assert small.demonstration("a").output == "refund"
    assert small.diff("first").changed == 1
    small.restore_version("first")
    assert small.demonstration("a").output == "delivery"
    assert [version.name for version in small.versions()] == ["first"]
    small.delete_version("first")
    assert not small.versions()
    small.prune("a", dry_run=True)
    assert len(small.rows()) == 4
    for wrong in ({}, {"ids": "a", "sources": "mail"}):
        with pytest.raises(UsageError, match="name what to prune"):
            small.prune(**wrong)


def test_rows_are_verified_in_a_loop(small: Pool, tmp_path: Path) -> None:
    rows, seen = small.to_verify(tmp_path / "v.jsonl", 2), []
    while rows.row is not None:
        seen.append(f"verified-{rows.row.id}")
        rows.verify(rows.row.output)
    assert rows.report().verified == 2
    Pool.index((), small.workspace.path, validation=tmp_path / "v.jsonl", encode=False, progress=False)
    assert [query.id for query in verified_queries(small.workspace)] == ["q1", "q2", *seen]


def test_a_label_that_the_pool_has_not_is_said_to_be_new(tmp_path: Path) -> None:
    rows = [row | {"id": f"{row['id']}{i}", "input": f"{row['input']} {i * 7919}"} for i in range(20) for row in ROWS]
    pool = Pool.index(rows, tmp_path / "w", encode=False, progress=False)
    verdicts = pool.to_verify(tmp_path / "v.jsonl", 2)
    for wrong, what in (("refnd", "did you mean 'refund'"), (None, "None is no right output")):
        with pytest.raises(UsageError, match=what):
            verdicts.verify(wrong)  # type: ignore[arg-type]
    assert not verdicts.verified
    verdicts.verify("refund")
    verdicts.verify("exchange", new=True)
    assert verdicts.verified == 2


def test_curate_decides_and_plots(support: Path, run: Run) -> None:
    pool = Pool(support, progress=False)
    cost = pool.curate(max_calls=150, dry_run=True)
    told = run("curate", "-w", support, "--max-calls", 150, "--dry-run", "--json").json
    assert cost.plan.to_ask == told["to_ask"]
    assert not pool.history()
    done = pool.curate(max_calls=150)
    assert 0 < done.calls <= 150
    assert len(done.to_pandas()) == len(done.steps)
    assert len(pool.rows()) == done.rows or done.as_json()["rows"]
    axes = done.plot(_axes())
    assert "gain" in axes.get_xlabel()
    before = pool.sources().plot(_axes())
    assert [text.get_text() for text in before.get_yticklabels()] == [source.source for source in pool.sources()]


def _axes() -> Any:
    figure = Figure()
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def test_a_plot_draws_the_figures_and_their_intervals(support: Path) -> None:
    done = Pool(support, progress=False).evaluate(["zero", "dense"], seeds=1, limit=20)
    axes = done.plot(_axes())
    drawn = [tuple(container.lines[0].get_xdata()) for container in axes.containers]
    assert [value for (value,) in drawn] == [row.accuracy for row in done.methods.values()]
    ends = [container.lines[2][0].get_segments()[0][:, 0].tolist() for container in axes.containers]
    assert ends == [pytest.approx(list(row.ci95)) for row in done.methods.values()]
    with pytest.raises(UsageError, match="no plot of a result of the kind 'decision'"):
        Pool(support).prune(sources="crowd_batch", dry_run=True).plot()


def test_training_and_the_pages_that_follow(support: Path, tmp_path: Path) -> None:
    pool = Pool(support, progress=False)
    assert pool.train("sources", depth=4, limit=20).run
    assert any(source.weight is not None for source in pool.sources())
    assert pool.train("rows", limit=5).metrics.rows == 5
    with pytest.raises(UsageError, match="there is no part 'source'; did you mean 'sources'"):
        pool.train("source")  # type: ignore[arg-type]
    assert pool.suspects(limit=3).to_pandas().shape[0] == 3
    assert pool.export(tmp_path / "out.jsonl").exported["pool"] == len(pool.rows())
    assert pool.report(tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    assert pool.lock().rows == len(pool.rows())


def test_a_notebook_shows_what_the_command_prints_and_no_markup_of_a_stranger(tmp_path: Path, run: Run) -> None:
    rows = [*ROWS, {"id": "x", "input": "<script>alert(1)</script>", "output": "[red]refund[/red]"}]
    pool = Pool.index(rows, tmp_path / "w", encode=False, progress=False)
    shown = pool.demos()
    assert "<script>" not in shown._repr_html_() and "&lt;script&gt;" in shown._repr_html_()
    assert "[red]refund[/red]" in shown._repr_html_()
    assert "my parcel is late" in repr(shown)
    assert repr(pool.status()).split()[:1] == run("status", "-w", tmp_path / "w").out.split()[:1]
    assert pool._repr_html_().startswith("<pre") and "white-space: pre;" in pool._repr_html_()
    assert len(shown) == 5 and shown[0].id == "a" and [row.id for row in shown][-1] == "x"


def test_a_function_stands_for_its_name(small: Pool, make: Make) -> None:
    name = make("def same(answer, accepted):\n    return 1.0\n")
    same = __import__(name).same
    done = small.evaluate(["zero"], metric=same, seeds=1)
    assert done.methods["zero"].accuracy == 1.0
    assert done.as_json()["metric"] == f"{name}:same"
    with pytest.raises(UsageError, match="has no name in a module"):
        small.evaluate(["zero"], metric=lambda answer, accepted: 1.0)


def test_ctrl_c_ends_work_cleanly_and_twice_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stoppable() as token:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Cancelled):
            Monitor(cancel=token).check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_in_a_notebook_tqdm_draws_the_progress(
    small: Pool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not progress.in_notebook()
    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    assert progress.in_notebook()
    with small._watched() as monitor:  # made with progress=False
        monitor.report(Event("index", 3, 10, note="a note"))
    assert not capsys.readouterr().err
    small.progress = True
    with small._watched() as monitor:
        monitor.report(Event("index", 3, 10, note="a note\x1b[2J"))
        monitor.report(Event("index", 7, 10))
    told = capsys.readouterr().err
    assert "a note" in told and "\x1b[2J" not in told
    assert "7/10" in told


ELSEWHERE = {
    "review": "a screen", "demo": "a show of the commands", "config": "Pool.settings",
    "serve": "a process of its own", "jobs": "cells run while others wait", "audit": "needs no workspace",
    "template": "files, edited outside", "train_calibration": "hours on a GPU, as a job",
    "train_all": "three calls", "llm_record": "for tests of one's own", "llm_trust": "a consent at the terminal",
    "calibrate_keys": "an experiment of the paper", "calibrate_runs": "read by status",
}  # fmt: skip
"""Commands that have no method, and why."""

METHODS = {
    "index": "index", "status": "status", "check": "check", "check_prune": "prune_found",
    "check_relabel": "relabel_found", "skipped": "skipped",
    "verify": "to_verify", "sources": "sources", "demos": "demos",
    "suspects": "suspects", "suspects_show": "evidence", "suspects_prune": "prune_suspects", "flips": "ledger",
    "flips_show": "flips", "flips_prune": "prune_misleading", "topics": "topics", "curate": "curate", "tune": "tune",
    "tune_vote": "tune_vote", "tune_apply": "tune_apply", "prune": "prune", "relabel": "relabel", "restore": "restore",
    "keep": "keep",
    "undo": "undo", "redo": "redo", "history": "history", "diff": "diff", "export": "export", "report": "report",
    "version_list": "versions", "version_save": "save_version", "version_show": "diff",
    "version_restore": "restore_version", "version_delete": "delete_version", "preview": "preview",
    "evaluate": "evaluate", "calibrate": "calibrate", "calibrate_query": "calibrate", "watch": "watch", "lock": "lock",
    "train_sources": "train", "train_ranker": "train", "train_topics": "train", "train_rows": "train",
    "train_fixed": "train", "train_datamodel": "train", "llm_check": "check_llm",
}  # fmt: skip


def test_every_command_has_its_method_or_a_reason() -> None:
    commands = {
        one.__name__
        for entries in PANELS.values()
        for entry in entries
        for one in (entry if isinstance(entry, tuple) else (entry,))
        if not isinstance(one, str)
    }
    reasoned = {name for name in commands if any(name == part or name.startswith(f"{part}_") for part in ELSEWHERE)}
    assert commands - reasoned == METHODS.keys()
    assert all(callable(getattr(Pool, method)) for method in METHODS.values())


def test_it_is_public_and_loads_nothing_heavy() -> None:
    assert icl_curate.Pool is Pool and "Pool" in icl_curate.__all__
    assert SAMPLE.exists()
