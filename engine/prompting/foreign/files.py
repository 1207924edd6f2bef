"""Files that are imported: data, of a size, and none that does not lie beside the one that names it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ...base.errors import UsageError
from ...base.files import read_regular
from ...base.yamls import ALIASED, aliased, yaml_loader
from ..sandbox import LONGEST

LARGEST = 8 << 20
"""Bytes of a file that is imported."""
NAMED = 1_000
"""Times that it names a file."""


@dataclass(slots=True)
class Beside:
    """The files that the one at ``path`` names: how often it did so far, and how many bytes may still be read."""

    path: Path
    named: int = 0
    left: int = LARGEST

    def read(self, name: str) -> tuple[Path, str]:
        """A file and its text. Raises `UsageError` if it lies elsewhere or cannot be read, or if this is too much."""
        base = self.path.parent.resolve()
        path = (base / name.removeprefix("file://")).resolve()
        if not path.is_relative_to(base):
            raise UsageError(f"{self.path.name} names a file outside its folder: {name}", "copy it into the folder")
        text = text_of(path, 4 * LONGEST)
        self.named, self.left = self.named + 1, self.left - len(text)
        if self.named > NAMED or self.left < 0:
            most = f"more than {NAMED:,} files, or {LARGEST:,} characters in them"
            raise UsageError(f"{self.path.name} names {most}", "name the one that you need, alone")
        return path, text


def text_of(path: Path, most: int) -> str:
    """The text of a file. Raises `UsageError` if there is none, or too much."""
    try:
        data = read_regular(path, most)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "name a file that can be read") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path.name} is no text in UTF-8", "save it as UTF-8") from error


def value_of(path: Path, text: str) -> object:
    """The value of a JSON or YAML file; the text itself of others, and of JSON that becomes such when it is filled."""
    if path.suffix in (".yaml", ".yml"):
        return yaml_of(path.name, text)
    if path.suffix != ".json":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if "{{" in text or "{%" in text:
            return text
        raise UsageError(f"{path.name} is no JSON: {error}", "correct it") from error


def yaml_of(name: str, text: str) -> object:
    """The value of a YAML text: data alone, and not more than it seems to hold."""
    import yaml

    try:
        loader = yaml_loader(text)
        node = loader.get_single_node()
        if node is not None and aliased(node) > ALIASED:
            raise UsageError(f"{name}: its aliases stand for more than {ALIASED >> 20} MB", "write out what is needed")
        return loader.construct_document(node) if node is not None else None
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise UsageError(
            f"{name} is no YAML of plain data: {' '.join(str(error).split())[:200]}", "correct it"
        ) from error
