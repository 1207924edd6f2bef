"""Texts that a spreadsheet would take for formulas, and the manifest that says how a CSV file wrote them.

A cell that begins like a formula is run by Excel, LibreOffice and Google Sheets when the file is opened there. An
apostrophe before it makes it a text. `plain` takes back exactly what `escaped` put there.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from ..disk import read_regular

MANIFEST = ".manifest.json"
"""What follows the name of an exported file in the name of its manifest."""
KEY = "formulas_escaped"

_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?%?", re.ASCII)


def escaped(text: str) -> str:
    """The text with an apostrophe before it where a spreadsheet would take it for a formula, or where it begins with
    apostrophes and would then read like one escaped. Plain numbers stay as they are."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def plain(text: str) -> str:
    """The text that `escaped` was given."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def are_escaped(path: str) -> bool:
    """Does the manifest beside a CSV file say that its formulas are escaped?"""
    try:
        told = json.loads(read_regular(Path(path.removesuffix(".gz") + MANIFEST)))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(told, dict) and told.get(KEY) is True
