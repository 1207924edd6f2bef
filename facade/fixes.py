"""What errors and results suggest, for Python: keywords for options of the command line, and commands with the
workspace of the pool."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any

from ..engine.base.errors import CurateError
from ..engine.base.files import fault
from ..render.suggested import completed, suggesting
from .shown import Shown

WORKSPACE = ".icl-curate"
"""The folder of the workspace, unless another one is named."""
MAP = r"--map (?:'(?:[^']*::)?(\w+)=([^']+)'|(?:[^' ]*::)?(\w+)=([^' ,)]+))"
IN_PYTHON: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (rf"{MAP}(?: {MAP})*", lambda match: _mapping(match[0])),
    (r"--sweep (\S+=[\d,]*\d)", r'sweep="\1"'),
    (r"--format (\S+)", r'format="\1"'),
    (r"--(force|new)\b(-label)?", r"\1=True"),
    (r"--([a-z][a-z-]*) (\d[\d.]*)\b", lambda match: f"{match[1].replace('-', '_')}={match[2]}"),
    (r"--([a-z][a-z-]*)", lambda match: match[1].replace("-", "_")),
)
"""What options of the command line are called here: patterns and what stands for them."""
COMMAND = re.compile(r"\b(?:icl-curate|pip install|python) ")
"""What begins a command for the terminal, whose options stay."""


def told_in_python(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method of a pool, whose errors, those of the system included, say what to give in Python, and which suggests
    commands for the workspace that it is of or is given."""
    names = [*signature(method).parameters]

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        try:
            result = method(*args, **kwargs)
        except (CurateError, OSError, ValueError) as error:
            told = error if isinstance(error, CurateError) else fault(error)
            if told is None:
                raise
            own = getattr(getattr(given.get("self"), "workspace", None), "path", None)
            _tell(told, given.get("workspace", own), _llm(given))
            if told is error:
                raise
            raise told from error
        if isinstance(result, Shown):
            result.workspace, result.llm = other_workspace(given["self"].workspace.path), _llm(given)
        return result

    return call


def other_workspace(path: Path) -> Path | None:
    """The folder of a workspace as commands have it; None for the usual one, which they find."""
    full, here = path.absolute(), Path.cwd()
    if full == here / WORKSPACE:
        return None
    return full.relative_to(here) if full.is_relative_to(here) else full


def _llm(given: Mapping[str, Any]) -> dict[str, str]:
    """The LLM and its server by name, as the pool or this call was given them."""
    here = {name: value for name, value in given.items() if value is not None}
    settings = {**getattr(given.get("self"), "given", {}), **here}
    return {name: settings[name] for name in ("llm", "base_url") if isinstance(settings.get(name), str)}


def _tell(error: CurateError, workspace: Any, llm: Mapping[str, str]) -> None:
    """Have the error say what to give in Python, or commands for this workspace and LLM."""
    error.what, error.fix = map(_in_python, (error.what, error.fix))
    error.args = (error.what,)
    if isinstance(workspace, str | Path):
        with suggesting(other_workspace(Path(workspace)), **llm):
            error.fix = completed(error.fix)
    if error.fix:
        error.__notes__ = [f"fix: {error.fix}"]


def _in_python(text: str) -> str:
    """The text, up to a command in it, with keywords for options."""
    command = COMMAND.search(text)
    end = command.start() if command else len(text)
    told = text[:end]
    for option, keyword in IN_PYTHON:
        told = re.sub(option, keyword, told)
    return told + text[end:]


def _mapping(options: str) -> str:
    """One mapping for several options."""
    columns = [[part for part in parts if part] for parts in re.findall(MAP, options)]
    return "map={" + ", ".join(f'"{field}": "{column}"' for field, column in columns) + "}"
