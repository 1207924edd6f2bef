"""The reference pages that are made from the code: every command with its options, and every setting.

    python docs/make_reference.py            # writes docs/reference/cli.md, settings.md and docs/glossary.md
    python docs/make_reference.py --check    # writes nothing; exit code 1 if a page is out of date

Run it after a change of an option, a command's help or a setting; a test compares the committed pages.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

FOLDER = Path(__file__).parent / "reference"
PROGRAM = "icl-curate"
WIDTH = 10_000
"""Columns of the terminal that usage lines are made for: none is broken."""

CLI_HEAD = f"""# Commands

<!-- Made by docs/make_reference.py from the commands themselves. Do not edit. -->

Every command of `{PROGRAM}` with its arguments and options, as `{PROGRAM} COMMAND --help` shows them. Results go to
stdout, everything else to stderr. `--json` gives one object (see [JSON contracts](json.md)); exit codes are
0 done, 1 failed, 2 usage or configuration, 3 LLM, 4 budget refused, 5 workspace missing or locked, 6 alarm of `watch`,
130 interrupted.
"""

SETTINGS_HEAD = f"""# Settings

<!-- Made by docs/make_reference.py from engine/store/settings.py. Do not edit. -->

A setting is looked up in this order; the first that has it wins:

1. the option on the command line, where the command has one;
2. the environment: the name in capitals after `ICL_CURATE_`, for example `ICL_CURATE_K=8`;
3. `config.toml` in the workspace's folder;
4. your own `config.toml`: in `~/.config/icl-curate/`, or where `ICL_CURATE_CONFIG` points;
5. the default.

`{PROGRAM} config` shows every value and where it came from. A config file is TOML; settings of
type table are tables, in braces on a line or at the end of the file:

```toml
method = "dense"
k = 8
llm = "openai:MODEL"
base_url = "http://localhost:8000/v1"
extra_body = {{chat_template_kwargs = {{enable_thinking = false}}}}
```

An API key is no setting: it is read from the environment when a call is made and stored nowhere.

| setting | type | default | meaning |
|---|---|---|---|
"""


GLOSSARY_HEAD = """# Glossary

<!-- Made by docs/make_reference.py from render/glossary.py, as is the help of `icl-curate review`. Do not edit. -->"""


def cli_page() -> str:
    """The commands as Markdown."""
    from icl_curate.cli import app

    root = typer.main.get_command(app)
    return "\n".join([CLI_HEAD, *_command(root, _context(root, PROGRAM, None), 1)]).rstrip() + "\n"


def settings_page() -> str:
    """The settings as Markdown."""
    from icl_curate.engine.store.settings import Settings

    rows = []
    for setting in dataclasses.fields(Settings):
        if not setting.metadata:  # not for users to set
            continue
        kind = setting.metadata["kind"].__name__.replace("dict", "table")
        default = "none" if setting.default in (None, "", ()) else f"`{setting.default}`"
        rows.append(f"| `{setting.name}` | {_line(kind)} | {default} | {_prose(setting.metadata['about'])} |")
    return SETTINGS_HEAD + "\n".join(rows) + "\n"


def glossary_page() -> str:
    """The glossary as Markdown."""
    from icl_curate.render.glossary import TERMS

    terms = [
        f"**{term}**\n{textwrap.fill(f':   {about}', 120, subsequent_indent='    ')}" for term, about in TERMS.items()
    ]
    return "\n\n".join([GLOSSARY_HEAD, *terms]) + "\n"


PAGES = {"cli.md": cli_page, "settings.md": settings_page, "../glossary.md": glossary_page}


def _context(command: Any, name: str, parent: Any) -> Any:
    return command.context_class(command, info_name=name, parent=parent, terminal_width=WIDTH, max_content_width=WIDTH)


def _command(command: Any, context: Any, depth: int) -> Iterator[str]:
    """A command and, of a group, those below it."""
    if depth > 1:
        yield f"\n{'#' * depth} {context.command_path.removeprefix(PROGRAM).strip()}\n"
        yield f"{' '.join((command.help or '').split())}\n"
        yield f"```text\n{' '.join(command.get_usage(context).removeprefix('Usage:').split())}\n```\n"
    yield from _parameters(command, context)
    yield from _examples(context.command_path.removeprefix(PROGRAM).strip())
    for name, child in getattr(command, "commands", {}).items():
        if not getattr(child, "hidden", False):
            yield from _command(child, _context(child, name, context), depth + 1)


def _parameters(command: Any, context: Any) -> Iterator[str]:
    records = [parameter.get_help_record(context) for parameter in command.params]
    shown = [(names, about) for names, about in filter(None, records)]
    if not shown:
        return
    yield "| argument or option | meaning |\n|---|---|"
    for names, about in shown:
        yield f"| `{_line(names)}` | {_prose(about)} |"
    yield ""


def _examples(command: str) -> Iterator[str]:
    from icl_curate.commands.help import EXAMPLES

    if command in EXAMPLES:
        yield "\n".join(["```bash", *(f"{PROGRAM} {example}" for example in EXAMPLES[command]), "```\n"])


def _line(text: str) -> str:
    """Text on one line that does not end a cell of a table."""
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def _prose(text: str) -> str:
    """As `_line`, and nothing in it is read as markup."""
    return re.sub(r"([*_<\[])", r"\\\1", _line(text))


def main() -> int:
    outdated = []
    for name, page in PAGES.items():
        path, text = FOLDER / name, page()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        outdated.append(name)
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if outdated:
        sys.stderr.write(f"{'out of date' if '--check' in sys.argv else 'written'}: {', '.join(outdated)}\n")
    return 1 if outdated and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
