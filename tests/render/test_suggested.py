"""What is suggested can be pasted: it works on the workspace and asks the LLM of the command that suggests it."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories.commands import Run
from factories.gullible_world import make_gullible_world
from icl_curate.cli import app
from icl_curate.render.suggested import completed, remember
from typer.main import get_command


def typed(*words: str) -> None:
    """A command line begins with these words."""
    root = get_command(app)
    context = root.make_context("icl-curate", [*words])
    remember(context)
    while hasattr(context.command, "resolve_command") and context._protected_args:
        rest = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
        remember(context)


@pytest.fixture(autouse=True)
def nothing_typed_afterwards() -> object:
    yield
    typed("status")


SERVED = ("curate", "--max-calls", "9", "--llm", "openai:m", "--base-url", "http://h/v1", "-w", "my pool")
PROMPTED = (
    "curate", "--max-calls", "9", "-k", "4", "--template", "my ticket.jinja", "--metric", "f1", "--read", "line",
    "--response-format", "json", "--temperature", "0.7", "--stop", "a b", "--stop", "c",
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "text", "wanted"),
    [
        (("status",), "next: icl-curate evaluate", "next: icl-curate evaluate"),
        (("status", "-w", "w"), "next: icl-curate evaluate", "next: icl-curate evaluate -w w"),
        (("check", "prune", "label", "-w", "w"), "undo with: icl-curate undo", "undo with: icl-curate undo -w w"),
        (("status", "-w", "w"), "icl-curate undo -w other", "icl-curate undo -w other"),
        (("status", "-w", "w"), "icl-curate is a tool; icl-curate --help", "icl-curate is a tool; icl-curate --help"),
        (
            SERVED,
            "next: icl-curate evaluate -m fixed; icl-curate export OUT",
            "next: icl-curate evaluate -w 'my pool' --llm openai:m --base-url http://h/v1 -m fixed; "
            "icl-curate export -w 'my pool' OUT",
        ),
        (
            SERVED,
            "icl-curate llm check --llm openai:m, once",
            "icl-curate llm check -w 'my pool' --base-url http://h/v1 --llm openai:m, once",
        ),
        (
            ("curate", "--llm", "hf:my models/x", "--base-url", "http://h/v1"),
            "icl-curate llm check --llm 'hf:my models/x'",
            "icl-curate llm check --base-url http://h/v1 --llm 'hf:my models/x'",
        ),
        (SERVED, "icl-curate llm check --llm openai:m2", "icl-curate llm check -w 'my pool' --llm openai:m2"),
        (
            SERVED,
            "(icl-curate llm check --llm openai:m)",
            "(icl-curate llm check -w 'my pool' --base-url http://h/v1 --llm openai:m)",
        ),
        (
            PROMPTED,
            "icl-curate evaluate; icl-curate lock; icl-curate train ranker --metric em; icl-curate audit; "
            "icl-curate serve --locked",
            "icl-curate evaluate -k 4 --template 'my ticket.jinja' --metric f1 --read line --temperature 0.7 "
            "--stop 'a b' --stop c --response-format json; icl-curate lock -k 4 --template 'my ticket.jinja'; "
            "icl-curate train ranker -k 4 --template 'my ticket.jinja' --read line "
            "--stop 'a b' --stop c --response-format json --metric em; icl-curate audit; icl-curate serve --locked",
        ),
        (("curate", "--extra-body", '{"key": "secret"}'), "icl-curate evaluate", "icl-curate evaluate"),
        (("train", "ranker", "--temperature", "2"), "icl-curate evaluate", "icl-curate evaluate"),
        (SERVED, "icl-curate status --workspace other", "icl-curate status --workspace other"),
        (SERVED, "icl-curate tune -w w --llm=openai:b", "icl-curate tune -w w --llm=openai:b"),
        (SERVED, "icl-curate llm check -w w --base-url URL", "icl-curate llm check --llm openai:m -w w --base-url URL"),
        (SERVED, "a pool's text says icl-curate", "a pool's text says icl-curate"),
    ],
)
def test_a_suggestion_has_what_was_typed(words: tuple[str, ...], text: str, wanted: str) -> None:
    typed(*words)
    assert completed(text) == wanted


def test_commands_say_it(tmp_path: Path, run: Run) -> None:
    workspace = make_gullible_world(tmp_path / "w")
    where = f"-w {workspace.path}"
    done = run("curate", "--max-calls", 60, "-m", "bm25", "--llm", "offline", "--yes", "-w", workspace.path)
    assert f"icl-curate evaluate {where} --llm offline; icl-curate report {where} OUT.html" in done.out
    assert f"undo a decision: icl-curate undo {where}" in done.out
    assert f"next: icl-curate evaluate {where} --split validation" in run("status", "-w", workspace.path).out
    evaluated = run("evaluate", "-m", "fixed,bm25", "-k", 4, "--split", "validation", "-w", workspace.path).err
    assert f"icl-curate train fixed {where} -k 4" in evaluated
    assert f"fix: icl-curate sources {where}" in run("prune", "--source", "no such", "-w", workspace.path).err


def test_texts_of_the_pool_and_of_prompts_are_shown_as_they_are(tmp_path: Path, run: Run) -> None:
    rows = "".join(
        f'{{"input": "what does icl-curate status do {i}", "output": "icl-curate status"}}\n' for i in range(6)
    )
    (tmp_path / "p.jsonl").write_text(rows)
    place = ("-w", tmp_path / "w")
    assert run("index", tmp_path / "p.jsonl", "--no-encode", *place).code == 0
    shown = run("preview", "say icl-curate status", "-m", "bm25", "-k", 2, "--explain", "--llm", "offline", *place).out
    assert "icl-curate status" in shown and "status -w" not in shown
