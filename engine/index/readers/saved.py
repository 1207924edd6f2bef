"""Folders that `save_to_disk` of the `datasets` library wrote: Arrow files, those of each split in a folder of their
own."""

from __future__ import annotations

from pathlib import Path

SPLITS = "dataset_dict.json"
"""The file in a folder that has a folder for each split."""


def is_saved(path: str) -> bool:
    """Whether ``path`` is a folder written by `save_to_disk`."""
    folder = Path(path)
    return any((folder / name).is_file() for name in (SPLITS, "state.json"))


def saved_files(path: str) -> list[str]:
    """The Arrow files of a folder written by `save_to_disk`, split by split."""
    return sorted(map(str, Path(path).glob("**/data-*.arrow")))


def source_of(path: str) -> str | None:
    """The name of the data set that an Arrow file of such a folder belongs to; None for other files."""
    folder = Path(path).parent
    if not path.endswith(".arrow") or not (folder / "state.json").is_file():
        return None
    return (folder.parent if (folder.parent / SPLITS).is_file() else folder).name
