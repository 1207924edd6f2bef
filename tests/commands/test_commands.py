"""The command line as scripts see it: contracts of ``--json``, exit codes, what goes to which stream."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from factories.commands import SAMPLE, Run
from icl_curate.commands import shared
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.base.progress import CancelToken
from icl_curate.engine.index.build import made_workspace
from icl_curate.engine.index.staging import staging_folder
from icl_curate.engine.pool.records import Query
from icl_curate.engine.select import preview
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace

POOL = SAMPLE / "support" / "pool"


def test_a_session_from_index_to_export(run: Run, tmp_path: Path) -> None:
    w = tmp_path / "w"
    indexed = run(
        "index", POOL / "*.jsonl", "--validation", SAMPLE / "support/validation.jsonl", "--test",
        SAMPLE / "support/test.jsonl", "-w", w, "--no-encode", "--json",
    )  # fmt: skip
    assert indexed.code == 0, indexed.err
    told = indexed.json
    assert {"schema_version", "demonstrations", "sources", "validation", "test", "skipped", "duplicates", "leaks",
            "encoded", "encoder"} <= set(told)  # fmt: skip
    assert (told["demonstrations"], told["validation"], told["test"], told["encoded"]) == (1200, 200, 200, 0)

    seen = run("preview", "where is my refund", "-m", "bm25", "-k", 3, "-w", w, "--json")
    assert seen.code == 0, seen.err
    assert {"query", "method", "demonstrations", "prompt"} <= set(seen.json)
    assert len(seen.json["demonstrations"]) == 3
    assert {"id", "source", "input", "output", "score", "parts"} <= set(seen.json["demonstrations"][0])

    planned = run("prune", "--source", "community_forum", "-w", w, "--dry-run", "--json").json
    pruned = run("prune", "--source", "community_forum", "--reason", "off topic", "-w", w, "--json").json
    assert planned["active_after"] == pruned["active_after"] == 1130
    assert pruned["pruned"] == ["community_forum"]
    assert {"kept", "validation_before", "validation_after", "curve"} <= set(pruned)
    listed = {s["source"]: s for s in run("sources", "-w", w, "--json").json["sources"]}
    assert (listed["community_forum"]["kept"], listed["helpdesk_team"]["kept"]) == (False, True)

    out = tmp_path / "out.jsonl"
    assert run("export", out, "-w", w).code == 0
    assert len(out.read_text().splitlines()) == 1130
    again = run("export", out, "-w", w)
    assert again.code == 2
    assert "--force" in again.err
    assert run("export", out, "-w", w, "--force").code == 0

    assert run("undo", "-w", w).code == 0
    assert run("status", "-w", w, "--json").json["active"] == 1200
    entries = run("history", "-w", w, "--json").json["history"]
    assert [(e["action"], e["undone"]) for e in entries] == [("undo", False), ("prune", True)]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["status"], 5, "no workspace"),
        (["prune", "--source", "x"], 5, "no workspace"),
        (["prune"], 2, "name what to prune"),
        (["index", "no-such-file.jsonl"], 2, "no-such-file"),
        (["index", "x.jsonl", "--map", "input"], 2, "FIELD=COLUMN"),
        (["preview", "q", "-k", "-1"], 2, "k is -1"),
        (["evaluate", "--split", "pool"], 2, "pool cannot be evaluated"),
        (["llm", "check", "--llm", "opnai:gpt"], 2, "openai"),
        (["nonsense"], 2, "nonsense"),
        (["train", "sources", "--rate", "nan"], 2, "--rate is nan"),
        (["train", "topics", "--lambda", "nan"], 2, "--lambda is nan"),
        (["train", "ranker", "--rate", "inf"], 2, "--rate is inf"),
        (["tune", "--max-cost", "nan"], 2, "--max-cost is nan"),
    ],
)
def test_errors_are_one_line_a_mend_and_an_exit_code(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, said: str
) -> None:
    monkeypatch.setenv("ICL_CURATE_WORKSPACE", str(tmp_path / "none"))
    done = run(*arguments)
    assert (done.code, done.out) == (code, ""), done
    assert said in done.err
    assert "Traceback" not in done.err


def test_a_first_index_that_fails_leaves_no_workspace_and_another_keeps_it(run: Run, tmp_path: Path) -> None:
    good, bad, made = tmp_path / "good.jsonl", tmp_path / "bad.jsonl", tmp_path / "w"
    good.write_text('{"input": "one", "output": "a"}')
    bad.write_text('{"text": "one"}')
    assert run("index", bad, "--no-encode", "-w", made).code == 2 and not made.exists()
    with ExitStack() as another:  # began at the same moment, and reads its rows
        with pytest.raises(UsageError), made_workspace(made) as workspace:
            another.enter_context(staging_folder(workspace))
            raise UsageError("bad input")
        assert (made / "workspace.duckdb").is_file()
    assert run("index", good, "--no-encode", "-w", made).code == 0
    assert run("index", bad, "--no-encode", "-w", made).code == 2
    assert "1 of 1" in run("status", "-w", made).out


def test_with_json_an_error_is_an_object_on_stderr(run: Run, tmp_path: Path) -> None:
    done = run("status", "-w", tmp_path / "none", "--json")
    assert done.out == ""
    told = json.loads(done.err)
    assert (told["exit_code"], done.code) == (5, 5)
    assert told["fix"]


def test_unknown_methods_get_a_near_name(run: Run, support: Path) -> None:
    done = run("preview", "q", "-m", "dens", "-w", support)
    assert done.code == 2
    assert "did you mean 'dense'" in done.err


def test_text_of_the_pool_never_reaches_the_terminal_raw(run: Run, tmp_path: Path) -> None:
    pool = tmp_path / "hostile.jsonl"
    rows = [
        {
            "input": "colour \x1b[31m [/bold] \u202e title \x1b]0;owned\x07",
            "output": "[red]no[/red]",
            "source": "s\x9b1m",
        }
    ]
    pool.write_text("\n".join(json.dumps(row) for row in rows * 2))
    w = tmp_path / "w"
    assert run("index", pool, "-w", w, "--no-encode").code == 0
    for arguments in (["demos"], ["sources"], ["preview", "colour", "-m", "bm25", "--explain"]):
        done = run(*arguments, "-w", w)
        assert done.code == 0, done.err
        assert not any(c in done.out + done.err for c in "\x1b\x07\x9b\u202e")
    assert "\x1b[31m" in run("demos", "-w", w, "--json").json["demonstrations"][0]["input"]  # data stays data


def test_of_a_list_no_rows_may_be_asked_for(run: Run, support: Path) -> None:
    done = run("demos", "-n", "0", "-w", support)
    assert (done.code, done.err) == (0, "")
    filters = ("--search", "card", "--source", "crm_export", "--active", "-n", "1")
    first = run("demos", *filters, "-w", support)
    more = re.search(r"more: icl-curate (.*)", first.out)
    assert more is not None and first.out.count("crm_export") == 2
    second = run(*shlex.split(more[1]))
    assert second.code == 0 and "crm_export" in second.out and second.out.split()[5:] != first.out.split()[5:]


def test_a_split_that_is_none_is_an_error(run: Run, support: Path) -> None:
    done = run("demos", "--split", "nosuch", "-w", support)
    assert done.code == 2
    assert "unknown split 'nosuch'" in done.err


def test_a_decision_says_what_it_leaves_and_which_labels_go(run: Run, tmp_path: Path) -> None:
    from factories.suspects_world import make_pool

    where = ("-w", make_pool(tmp_path / "w").path)
    planned = run("prune", "--demo", "r1", *where, "--dry-run")
    assert planned.out.splitlines() == [
        "prune demonstration r1: would leave 19 active of 20 before", "labels gone: rare",
    ]  # fmt: skip
    done = run("relabel", "r1", "a", *where)
    assert "labels gone: rare" in done.out.splitlines()
    assert run("prune", "--demo", "f0", *where).out.count("\n") == 2
    pruned = run("prune", "--source", "s", *where, "--json").json
    assert (pruned["sources_gone"], pruned["labels_gone"], pruned["label_losses"]) == (["s"], ["a", "b"], [])
    restored = run("undo", *where).out
    assert "sources added: s" in restored and "labels added: a, b" in restored
    assert "leaves 19 active, 0 before" in restored


def test_restoring_what_was_kept_says_that_this_is_withdrawn(run: Run, tmp_path: Path) -> None:
    from factories.suspects_world import make_pool

    where, withdrawn = ("-w", make_pool(tmp_path / "w").path), "no row comes back: an earlier decision, such as to keep"
    assert run("keep", "r1", *where).code == 0
    assert withdrawn in run("restore", "--demo", "r1", *where, "--dry-run").out
    assert withdrawn in run("restore", "--demo", "r1", *where).out
    assert run("restore", "--demo", "r1", *where).code == 2
    run("prune", "--demo", "r1", *where)
    assert withdrawn not in run("restore", "--demo", "r1", *where).out


def test_a_query_is_previewed_with_fields(run: Run, support: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Query] = []
    look = preview.preview

    def noted(store: Workspace, query: Query, settings: Settings, **more: Any) -> preview.Preview:
        asked.append(query)
        return look(store, query, settings, **more)

    monkeypatch.setattr(preview, "preview", noted)
    place = ("-m", "bm25", "-k", 1, "-w", support)
    seen = run("preview", "q", "--field", "tier=gold", "--field", "note=a=b", "--field", "input=x", *place)
    assert seen.code == 0 and (asked[0].input, asked[0].fields) == ("q", {"tier": "gold", "note": "a=b"})
    for wrong in ("tier", "=gold"):
        assert "--field takes NAME=VALUE" in run("preview", "q", "--field", wrong, *place).err


def test_the_form_of_a_prompt_is_given_as_an_option(run: Run, tmp_path: Path) -> None:
    pool = tmp_path / "pool.jsonl"
    pool.write_text("".join(json.dumps({"input": f"q{n}", "output": "a", "context": "p"}) + "\n" for n in range(3)))
    place = ("-w", tmp_path / "w")
    run("index", pool, "--no-encode", *place)
    form = ("--prompt-format", "Q-A", "--answer-prefix", "It is")
    asked = run("preview", "q", "--context", "p", "-m", "bm25", "-k", 1, *form, *place, "--json").json["prompt"]
    assert [turn["content"] for turn in asked[1:]] == ["Question: q0\nAnswer: It is", "a", "Question: q\nAnswer: It is"]
    run("export", tmp_path / "c.jsonl", "--format", "chat", *form, *place)
    first = json.loads((tmp_path / "c.jsonl").read_text().splitlines()[0])["messages"]
    assert [turn["content"] for turn in first[1:]] == ["Question: q0", "It is a"]
    wrong = run("preview", "q", "--prompt-format", "{nothing}", *place)
    assert wrong.code == 2 and "unknown field(s): nothing" in wrong.err


def test_a_stopped_command_waits_a_moment_for_the_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """To say in it that it was stopped, while another process looks into it."""
    token = CancelToken()
    monkeypatch.setattr(shared.state, "cancel", token)
    monkeypatch.setattr(shared.state, "waiting", False)
    shared.show_waiting("another command", 0.1)
    token.cancel()
    shared.show_waiting("another command", 0.1)
    with pytest.raises(KeyboardInterrupt):
        shared.show_waiting("another command", 1.5)


def test_a_command_line_that_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    from factories.commands import run_command

    told = run_command("preview", "two coffee \udcff", "-w", tmp_path)
    assert told.code == 2 and "not in UTF-8" in told.err and "unexpected" not in told.err
