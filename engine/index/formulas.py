"""Texts that a spreadsheet would execute as formulas.

Excel, LibreOffice and Google Sheets execute a cell that begins like a formula when the file is opened. A leading
apostrophe makes it a text; the manifest of a CSV file says whether it has them. `plain` is the exact inverse of
`escaped`.
"""

from __future__ import annotations

import re

_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?%?", re.ASCII)


def escaped(text: str) -> str:
    """The text with a leading apostrophe if a spreadsheet would execute it as a formula, or if it begins with
    apostrophes and would look escaped. Plain numbers are not changed."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def plain(text: str) -> str:
    """The inverse of `escaped`."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
