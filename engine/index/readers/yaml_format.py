"""YAML: a list of objects, or one object a document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...base.errors import UsageError
from .records import BadRecord, Record


def read_yaml(path: str, data: bytes) -> Iterator[Record]:
    """Raises `UsageError` for a file that is not YAML."""
    import yaml

    Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        loader = Loader(data)
        while loader.check_node():
            node = loader.get_node()
            parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
            for part in parts:
                record = loader.construct_document(part)
                line = part.start_mark.line + 1
                yield line, record if isinstance(record, dict) else BadRecord("not an object")
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f": line {mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{path}{where}: not YAML: {what}", "fix that line") from error
