"""Where the report goes: an HTML or a Markdown file, by its name."""

from __future__ import annotations

from pathlib import Path

from ...engine.base.errors import UsageError
from ...engine.base.files import replace_file
from ...engine.report.results import PoolReport
from ...engine.store.targets import check_file

HTML, MARKDOWN = (".html", ".htm"), (".md", ".markdown")


def check_page(out: Path, force: bool) -> None:
    """Raise `UsageError` if the name is not that of a page, or if it is taken."""
    if out.suffix.lower() not in (*HTML, *MARKDOWN):
        raise UsageError(f"cannot tell the format from the name '{out.name}'", "name it OUT.html or OUT.md")
    check_file(out, force)


def write_page(out: Path, gathered: PoolReport) -> int:
    """Write the page; returns its size in bytes."""
    from .html import html
    from .markdown import markdown
    from .page import document

    page = (html if out.suffix.lower() in HTML else markdown)(document(gathered)).encode()
    replace_file(out, lambda file: file.write(page))
    return len(page)
