"""What ``--help`` says: every command and option in its group, and examples that can be typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from factories.commands import Run
from icl_curate.cli import app
from icl_curate.commands import story
from icl_curate.commands.help import EXAMPLES, ORDER, PAPERS, SCORING, first_sentence

ROOT: Any = typer.main.get_command(app)


def _commands(command: Any = ROOT, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if words:
        yield words, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _commands(child, (*words, name))


def test_every_command_has_examples_and_every_example_is_understood() -> None:
    leaves = {" ".join(words) for words, command in _commands() if not getattr(command, "commands", {})}
    assert leaves <= set(EXAMPLES)
    for name, examples in EXAMPLES.items():
        for example in examples:
            assert example.startswith(name)
            _understood(example)


def _understood(typed: str) -> None:
    words, command = shlex.split(typed), ROOT
    context = ROOT.make_context("icl-curate", list(words))
    while getattr(command, "commands", {}) and words and (words[0] in command.commands or not words[0].startswith("-")):
        word = words.pop(0)
        assert word in command.commands, typed
        command = command.commands[word]
        context = command.make_context(word, list(words), parent=context)
    assert not context.args or words == context.args, typed


def test_every_command_that_the_demo_shows_is_understood() -> None:
    code = (Path(story.__file__)).read_text(encoding="utf-8")
    shown = re.findall(r'self\._step\(\s*[^,]+,\s*f?"([a-z][^"]+)"', code)
    shown += re.findall(r'^\s+command = f?"([a-z][^"]+)"', code, re.MULTILINE)
    assert len(shown) >= 8
    for command in shown:
        _understood(re.sub(r"\{[^}]*\}", "7", command))


def test_options_with_a_group_of_their_own_exist() -> None:
    given = {" ".join(words): {parameter.name for parameter in command.params} for words, command in _commands()}
    assert all(set(names) <= given[command] for command, names in PAPERS.items())
    assert set(SCORING) <= given["train ranker"]


@pytest.mark.parametrize("words", [words for words, _ in _commands()], ids=" ".join)
def test_help_lists_every_option_once_in_its_group(words: tuple[str, ...], run: Run) -> None:
    text = run(*words, "--help").out
    context, command = ROOT.context_class(ROOT, info_name="icl-curate", **ROOT.context_settings), ROOT
    for name in words:
        command = command.commands[name]
        context = command.context_class(command, info_name=name, parent=context)
    lines = text.splitlines()
    for parameter in command.get_params(context):
        names = parameter.get_help_record(context)[0]
        assert sum(line == f"  {names}" or line.startswith(f"  {names}  ") for line in lines) == 1, names
    headings = re.findall(r"^(\w[^:\n]*):$", text, re.MULTILINE)
    assert len(headings) == len(set(headings))
    assert [name for name in headings if name in ORDER] == [name for name in ORDER if name in headings]
    assert not re.search(r"\bpaper \d|\(00\d\)", text)
    for example in EXAMPLES.get(" ".join(words), ()):
        assert f"\n  icl-curate {example}\n" in text


def test_commands_are_listed_in_groups_with_whole_sentences(run: Run) -> None:
    text = run("--help").out
    assert "..." not in text.split("COMMAND [ARGS]...", 1)[1] and "et al" not in text
    for (name, *below), _ in _commands():
        if not below:
            assert len(re.findall(rf"^  {name} ", text, re.MULTILINE)) == 1
    assert "\nDecisions:\n  curate " in text
    assert text.index("\nLearning with an LLM:") < text.index("\nOthers:")
    assert first_sentence("Ask it (Lyu et al. 2023). Then\n  more.") == "Ask it"
