"""What an export says of itself, in the manifest beside a file and in the schema of a Parquet file, and texts that a
spreadsheet would execute as formulas.

Excel, LibreOffice and Google Sheets execute a cell that begins like a formula when the file is opened. A leading
apostrophe makes it a text; the manifest of a CSV file says whether it has them. `plain` is the exact inverse of
`escaped`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..base.errors import UsageError
from ..base.files import Refused, read_regular

MANIFEST = ".manifest.json"
"""Suffix that an exported file's manifest adds to its name."""
LARGEST = 64 << 20
"""Bytes of a manifest, which names the rows of every decision."""
FORMULAS = "formulas_escaped"
"""Key of a manifest: cells that a spreadsheet would execute have an apostrophe."""
COLUMNS = "columns"
"""Key of a manifest: by column its type: `TEXT`, `JSON`, or `SETS`, lists of labels."""
OUTPUT = "output"
TEXT, JSON, SETS = "text", "json", "labels"
METADATA = "metadata"
"""The column with all that came with a row, as one JSON object."""
WRITTEN = ("id", "source", "input", "output", "options", "answers", "context", "history", METADATA)
"""The columns that an export writes, the first four of every row."""
SCHEMA = b"icl_curate"
"""Key of a Parquet schema: JSON with the `COLUMNS` of a manifest."""


def manifest_of(path: str) -> Mapping[str, Any]:
    """The manifest beside a file; empty if there is none. Raises `UsageError` for one that no export wrote."""
    beside = f"{path.removesuffix('.gz').removesuffix('.zst')}{MANIFEST}"
    try:
        manifest = json.loads(read_regular(beside, LARGEST))
    except Refused as error:
        raise UsageError(f"{beside}: {error.strerror}", "remove it, or export the file again") from error
    except (OSError, ValueError, RecursionError):  # as good as absent
        return {}
    return manifest if isinstance(manifest, dict) else {}


def kinds_of(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """The type of each column as a manifest tells it. With `METADATA` as `JSON` that column is an object with what came
    with the row."""
    columns = told.get(COLUMNS)
    return columns if isinstance(columns, dict) else {}


def kinds_of_schema(metadata: Mapping[bytes, bytes] | None) -> Mapping[str, Any]:
    """As `kinds_of`, from the metadata of a Parquet schema."""
    try:
        return kinds_of(json.loads((metadata or {}).get(SCHEMA, b"{}")))
    except (ValueError, RecursionError, AttributeError):
        return {}


def unpacked(extra: dict[str, Any]) -> dict[str, Any]:
    """What came with a row, from its column `METADATA` where that holds it."""
    try:
        packed = extra.get(METADATA) or {}
        packed = json.loads(packed) if isinstance(packed, str) else packed
    except (TypeError, ValueError, RecursionError):
        return extra
    if not isinstance(packed, dict):
        return extra
    own = {name: value for name, value in extra.items() if name != METADATA}
    return own | {name: value for name, value in packed.items() if value is not None}  # pyarrow fills up with None


_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?%?", re.ASCII)


def escaped(text: str) -> str:
    """The text with a leading apostrophe if a spreadsheet would execute it as a formula, or if it begins with
    apostrophes and would look escaped. Plain numbers are not changed."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def plain(text: str) -> str:
    """The inverse of `escaped`."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
