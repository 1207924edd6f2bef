"""Where the report goes: an HTML or a Markdown file, by its name."""

from __future__ import annotations

from pathlib import Path

from ...engine.base.errors import UsageError
from ...engine.base.files import replace_file
from ...engine.report.results import PoolReport

HTML, MARKDOWN = (".html", ".htm"), (".md", ".markdown")


def check_page(out: Path, force: bool) -> None:
    """Raise `UsageError` if the name is not that of a page, or if it is taken."""
    if out.suffix.lower() not in (*HTML, *MARKDOWN):
        raise UsageError(f"cannot tell the format from the name '{out.name}'", "name it OUT.html or OUT.md")
    if out.exists() and (not out.is_file() or not force):
        fix = "overwrite it with --force" if out.is_file() else "choose another name"
        raise UsageError(f"{out} exists{'' if out.is_file() else ' and is no file'}", fix)


def write_page(out: Path, gathered: PoolReport) -> int:
    """Write the page; returns its size in bytes."""
    from .html import html
    from .markdown import markdown
    from .page import document

    page = (html if out.suffix.lower() in HTML else markdown)(document(gathered)).encode()
    replace_file(out, lambda file: file.write(page))
    return len(page)
