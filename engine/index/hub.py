"""Data sets from the hub, by name; the splits that folders of data sets tell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..base.errors import UsageError
from ..base.packages import require
from .readers.files import SPLITS
from .rows import SPLIT_NAMES

HUB = "hf://"
FOLDER = "hub"
"""Where a workspace keeps what it took from the hub."""

_NAME = re.compile(r"hf://(?P<name>[^:@]+)(@(?P<config>[^:]+))?(:(?P<split>.+))?")


def split_of(path: str) -> str | None:
    """The split that the name of a file's folder tells: of an Arrow file in a folder of splits, or of a file from the
    hub."""
    folder = Path(path).parent
    if (folder.parent / SPLITS).is_file():
        return SPLIT_NAMES.get(folder.name)
    if folder.parent.name == FOLDER:
        return SPLIT_NAMES.get(Path(path).stem)
    return None


def download(home: Path, patterns: Sequence[str]) -> Iterator[str]:
    """The patterns, with files below ``home`` for those that name a data set: ``hf://org/name``, with a configuration
    ``@config`` and a split ``:train`` if wanted. Each split is a Parquet file, so that it can be read again without the
    hub.

    Raises `UsageError` where `datasets` is not installed or does not find the data set.
    """
    for pattern in patterns:
        if pattern.startswith(HUB):
            yield from _downloaded(home, pattern)
        else:
            yield pattern


def _downloaded(home: Path, pattern: str) -> list[str]:
    if (named := _NAME.fullmatch(pattern)) is None:
        raise UsageError(f"'{pattern}' names no data set", "hf://org/name, hf://org/name:train or hf://org/name@config")
    require(pattern, "datasets")
    import datasets

    try:
        found = datasets.load_dataset(named["name"], named["config"], split=named["split"])
    except Exception as error:
        what = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{pattern}: {what}", "check the name, the configuration and the split") from error
    splits = {named["split"]: found} if named["split"] else dict(found)
    parts = [*Path(named["name"].strip("/")).parts[-2:], *([named["config"]] if named["config"] else [])]
    folder = home / FOLDER / "--".join(parts)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for split, rows in splits.items():
        file = folder / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', str(split))}.parquet"
        part = file.with_suffix(".part")
        rows.to_parquet(str(part))
        part.replace(file)
        files.append(str(file))
    return files
