"""Whether pages show what their commands print today.

    python benchmarks/pages.py [PAGE …]

Runs the commands of the blocks of each page, one after another, in a copy of the sample data, with the recorded answers
in place of SmolLM2. Every word of a shown line must stand in one line of what was printed, in the same order: pages
leave out columns and break lines. ``…`` stands for anything. Exits with 1 where a line is not printed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/tutorial.md", "docs/how-to/program.md", "docs/how-to/prune.md")
RECORDED = f"--llm replay:{ROOT / 'docs' / 'evidence' / 'support.parquet'}"
VARYING = ("train ranker", "flips")
"""What training leads to depends on the last bits of a processor's arithmetic."""


def commands(page: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of the page's blocks, fenced or indented, with the lines that are shown for it."""
    lines: list[str] = []
    command = ""
    inside = False
    for line in [*page.splitlines(), ""]:
        fence = line.startswith("```")
        inside = line.startswith("```text") if fence else inside
        shown = line.removeprefix("    ") if line.startswith("    ") else line if inside and not fence else None
        if shown is None or shown.startswith("$ "):
            if command:
                yield command, lines
            command, lines = (shown or "")[2:], []
        elif command and shown.strip(" …"):
            lines.append(shown)


def files(page: str) -> Iterator[tuple[str, str]]:
    """Python files that the page shows: blocks that begin with their name."""
    yield from re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL)


def stands_in(shown: str, printed: Sequence[str]) -> bool:
    """Whether the words of a line stand in a printed one, in their order."""
    return any(_in_order(shown.split(), line.split()) for line in printed)


def _in_order(shown: Sequence[str], printed: Sequence[str]) -> bool:
    rest = iter(printed)
    return all(any(_alike(word, other) for other in rest) for word in shown if word != "…")


def _alike(word: str, other: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, word.split("…"))), other) is not None


def lacking(name: str) -> Iterator[str]:
    """The lines of a page that its commands do not print."""
    page = (ROOT / name).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as temporary:
        shutil.copytree(ROOT / "sample_data", temporary, dirs_exist_ok=True)
        folder = Path(temporary) / "support"
        for file, code in files(page):
            (folder / file).write_text(code, encoding="utf-8")
        environment = os.environ | {"COLUMNS": "400", **dict(re.findall(r"(ICL_CURATE_DTYPE)=(\w+)", page))}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        if "icl-curate index" not in page:
            subprocess.run(
                "icl-curate index pool/*.jsonl --validation validation.jsonl --test test.jsonl",
                shell=True, cwd=folder, env=environment, check=True, capture_output=True,
            )  # fmt: skip
        for command, lines in commands(page):
            if command.startswith("cd ../"):
                folder = folder.parent / command.removeprefix("cd ../")
            if not re.match(r"(\w+=\S+ )?icl-curate ", command):
                continue
            print(f"{name}: {command}", file=sys.stderr, flush=True)
            asked = command.replace("--llm smollm2", RECORDED)
            done = subprocess.run(
                asked, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            if not any(f"icl-curate {one}" in command for one in VARYING):
                printed = (done.stdout + done.stderr).splitlines()
                yield from (f"{name}: {command}\n    {line}" for line in lines if not stands_in(line, printed))


def main() -> None:
    found = [line for name in sys.argv[1:] or PAGES for line in lacking(name)]
    sys.exit("\n".join(found) if found else 0)


if __name__ == "__main__":
    main()
