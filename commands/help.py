"""The texts of ``--help``: commands and options in groups, and examples. Plain text, which starts faster than rich's
panels and reads the same in a pipe."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

from ..engine.grading import SETTINGS
from ..render.suggested import remember

MODELS, REQUEST = "Models", "The request"
RUNNING, WORKSPACE = "Cost and running", "Workspace and output"
"""Groups of options that many commands have; the others come first."""

SCORING = (*SETTINGS, "rouge")
PAPERS = {
    "train sources": ("estimator", "rate", "epochs", "epsilon", "delta"),
    "train ranker": (
        "method", "batch", "rate", "sees", "sources", "credit", "threshold", "temperature", "start", "held_out",
        "patience",
    ),
    "train topics": ("as_printed", "nouns", "cosine", "choose_lambda", "labels", "epochs", "rate"),
    "train calibration": ("on", "rate", "batch", "rank"),
    "evaluate": ("flips", "mdr_c", "choose_mdr_c", "transfer"),
    "calibrate": ("over", "arms", "above", "until_correct", "attention"),
    "calibrate query": ("over", "arms", "above", "until_correct"),
    "audit": ("uses", "rate", "epochs", "noise"),
}  # fmt: skip
"""Options of single commands in groups of their own: which answers are right, and what only repeats a paper."""

LEARNING, OTHERS = "Learning with an LLM", "Others"
"""Groups of commands."""

ORDER = ("Arguments", "Options", MODELS, REQUEST, RUNNING, WORKSPACE, OTHERS)
"""Of the groups; the others have the place of the options."""

CITED = re.compile(r" \([^()]*\d{4}\)")

EXAMPLES = {
    "index": (
        'index "pool/*.jsonl" --validation validation.jsonl --test test.jsonl',
        "index banking.csv --peek",
        "index banking.csv --map input=utterance --map output=intent --validation-fraction 0.1",
        "index desk.csv chats.jsonl --map 'desk.csv::input=Customer Message' --map 'output=intent|label'",
    ),
    "status": ("status",),
    "check": ("check", "check --kind label,conflict -n 50"),
    "check prune": ("check prune label,duplicate --dry-run",),
    "check relabel": ("check relabel --sure 0.8 --dry-run",),
    "verify": ("verify", "verify checked.jsonl -n 60"),
    "skipped": ("skipped",),
    "sources": ("sources", "sources --json"),
    "demos": ("demos --source forum --search refund", "demos --split validation -n 50"),
    "suspects": ("suspects -n 50",),
    "suspects show": ("suspects show forum-17",),
    "suspects prune": ("suspects prune --dry-run", "suspects prune --sure 0.95"),
    "flips": ("flips --misleading -n 10",),
    "flips show": ("flips show forum-17",),
    "flips prune": ("flips prune --dry-run",),
    "curate": (
        "curate --max-calls 1000 --llm openai:MODEL --dry-run",
        "curate --max-calls 1000 --llm openai:MODEL",
        "curate --max-calls 1000 --llm openai:MODEL --next --hold",
        "curate --max-cost 2.50 --llm openai:MODEL --yes --background",
    ),
    "tune": (
        "tune --llm openai:MODEL --max-calls 2000 --dry-run",
        "tune --propose --llm openai:MODEL --max-calls 2000",
    ),
    "tune vote": ("tune vote --dry-run",),
    "tune apply": ("tune apply",),
    "prune": ("prune --source forum", "prune --demo forum-17 --dry-run"),
    "undo": ("undo",),
    "redo": ("redo",),
    "relabel": ("relabel forum-17 card_arrival", "relabel --from corrections.csv --dry-run"),
    "restore": ("restore --source forum",),
    "keep": ("keep forum-17 forum-23",),
    "history": ("history -n 10",),
    "diff": ("diff curated-may.jsonl curated-june.jsonl", "diff before-tuning"),
    "version save": ("version save before-tuning", 'version save june --note "as served since 1 June"'),
    "version list": ("version list",),
    "version show": ("version show before-tuning",),
    "version delete": ("version delete before-tuning",),
    "version restore": ("version restore before-tuning --dry-run",),
    "preview": (
        'preview "Where is my card?" --method dense --explain',
        'preview "Where is my card?" --answer',
        'preview "Where is my card?" --llm openai:MODEL --curl',
    ),
    "evaluate": (
        "evaluate --methods zero,bm25,dense --llm openai:MODEL --dry-run",
        "evaluate --methods dense,ranker --split validation --max-calls 2000",
    ),
    "calibrate": ("calibrate --split validation --limit 50 --llm openai:MODEL",),
    "calibrate query": ('calibrate query "Where is my card?" --rounds 3',),
    "calibrate keys": ("calibrate keys --llm openai:MODEL --dry-run",),
    "calibrate runs": ("calibrate runs --split test",),
    "export": ("export curated.jsonl", "export curated.chat.jsonl --format chat"),
    "report": ("report june.html", 'report june.md --title "The support pool in June" --force'),
    "config": ("config",),
    "demo": ("demo",),
    "topics": ("topics --gaps", "topics --search card"),
    "review": ("review", "review --serve 8000"),
    "lock": ("lock -m ranker -k 5", "lock --check"),
    "serve": ("serve --method dense", "serve --host 0.0.0.0 --allow-host select.example --token-file token.txt"),
    "audit": ("audit validation.jsonl --test test.jsonl -k 10",),
    "watch": ("watch production.jsonl", "watch production.jsonl --ask --llm openai:MODEL --max-calls 200"),
    "llm check": ("llm check --llm openai:MODEL --base-url http://localhost:8000/v1",),
    "llm trust": ("llm trust http://localhost:8000/v1",),
    "llm record": ("llm record answers.jsonl",),
    "template list": ("template list",),
    "template show": ("template show auto",),
    "template check": (
        "template check mine.jinja",
        "template check mine.jinja --expect request.json --demo forum-17 --demo forum-3",
    ),
    "template import": (
        "template import promptfooconfig.yaml -o mine.jinja",
        "template import prompt.json --examples demos --input ticket -o mine.jinja",
    ),
    "train sources": ("train sources --llm openai:MODEL --dry-run", "train sources --max-calls 5000 --background"),
    "train ranker": ("train ranker --llm openai:MODEL --max-calls 5000",),
    "train topics": ("train topics --llm openai:MODEL --dry-run",),
    "train fixed": ("train fixed -k 8 --max-calls 600",),
    "train rows": ("train rows --max-calls 1000",),
    "train datamodel": ("train datamodel --max-calls 2000 --background",),
    "train calibration": ("train calibration --llm hf:FOLDER --dry-run",),
    "train all": ("train all --llm openai:MODEL --dry-run",),
    "jobs": ("jobs",),
    "jobs follow": ("jobs follow 3",),
    "jobs cancel": ("jobs cancel 3",),
    "jobs resume": ("jobs resume 3",),
}
"""Command lines by command, without the program's name; each can be run as it is once its files exist."""


class _Sections:
    """Writes options and commands by their panels, each sentence in full, and the examples."""

    def invoke(self, ctx: Any) -> Any:
        remember(ctx)
        return super().invoke(ctx)  # type: ignore[misc]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        command: Any = self
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in command.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                panels.setdefault(_panel(parameter, _words(ctx), WORKSPACE in panels), []).append(record)
        _write(formatter, panels)
        if hasattr(command, "commands"):
            command.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        command: Any = self
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            if not child.hidden:
                panel = getattr(child, "rich_help_panel", None) or "Commands"
                panels.setdefault(panel, []).append((name, first_sentence(child.help or "")))
        _write(formatter, panels)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if examples := EXAMPLES.get(_words(ctx)):
            with formatter.section("Examples" if len(examples) > 1 else "Example"):
                formatter.write("".join(f"  {ctx.find_root().info_name} {example}\n" for example in examples))


class CurateCommand(_Sections, TyperCommand):
    """A command."""


class SectionedGroup(_Sections, TyperGroup):
    """Commands under a common name."""


def first_sentence(text: str) -> str:
    """The first sentence of a help text, without its full stop and without papers."""
    return CITED.sub("", " ".join(text.split())).split(". ")[0].removesuffix(".")


def _words(ctx: Any) -> str:
    """The command without the program's name."""
    return str(ctx.command_path.partition(" ")[2])


def _panel(parameter: Any, command: str, help_last: bool) -> str:
    """The group of a parameter; ``--help`` stands with the workspace, if the command has that group."""
    if parameter.param_type_name == "argument":
        return "Arguments"
    if parameter.name == "help" and help_last:
        return WORKSPACE
    if parameter.name in PAPERS.get(command, ()):
        return "To repeat the paper"
    if parameter.name in SCORING:
        return "Which answers are right"
    return getattr(parameter, "rich_help_panel", None) or "Options"


def _write(formatter: Any, panels: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    for name in sorted(panels, key=lambda name: ORDER.index(name) if name in ORDER else ORDER.index("Options") + 0.5):
        with formatter.section(name):
            formatter.write_dl(panels[name])
