"""Code of the user's own, named ``module:object``: how it is found, and what it is made of.

To name it is the consent to run it, so only what the user has named reaches `imported`; `store.settings` refuses what a
workspace's own file names.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .errors import CurateError, UsageError

_NAMED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
WORKSPACE = "workspace.duckdb"
"""The file by which a folder is known for a workspace."""
LIBRARIES = ("dspy", "langchain", "langchain_core", "langgraph")
"""What writes prompts and reads replies for a program: another release of it may do so otherwise."""


def is_code(name: str) -> bool:
    """Whether a name is one of code: ``module:object``, both with dots or without, or a program's."""
    return _NAMED.fullmatch(name) is not None or program_in(name) != ""


def program_in(name: str) -> str:
    """The ``module:object`` of a name like ``program:module:object``; empty for any other."""
    kind, _, rest = name.partition(":")
    return rest.strip() if kind.strip().lower() == "program" else ""


def failing(name: str, own: Any, given: str, error: Exception, fix: str) -> CurateError:
    """The error for code that raised one, for what it was ``given``: with the place in its own file."""
    file = getattr(getattr(inspect.unwrap(own), "__code__", None), "co_filename", "")
    frames = [at for at in traceback.extract_tb(error.__traceback__) if at.filename == file]
    at = f" ({Path(file).name}, line {frames[-1].lineno})" if frames else ""
    return CurateError(f"{name} failed on {given}: {type(error).__name__}: {line(error)}{at}", fix)


def imported(name: str, what: str) -> Any:
    """The object named ``module:object``, in messages ``what`` it is for. Raises `UsageError`, in one line, if it
    cannot be imported, or if its module lies in a workspace: what came with a pool is not run."""
    module, _, path = name.partition(":")
    top = module.partition(".")[0]
    try:
        spec = None if top in sys.modules else find_spec(top)  # loads nothing yet
        places = [spec.origin, *(spec.submodule_search_locations or ())] if spec else []
        folders = {folder for place in filter(None, places) for folder in Path(place).absolute().parents}
        if any((folder / WORKSPACE).exists() for folder in folders):
            raise UsageError(f"the module of {name} lies in a workspace, whose files are not run", "move it elsewhere")
        value = import_module(module)
        for part in path.split("."):
            value = getattr(value, part)
    except UsageError:
        raise
    except AttributeError as error:
        raise UsageError(f"no {what} {name}: {line(error)}", f"name an object of {module}, or correct it") from error
    except (ImportError, ValueError) as error:
        raise UsageError(f"no {what} {name}: {line(error)}", "set PYTHONPATH to the folder of the module") from error
    except (Exception, SystemExit) as error:  # it is somebody's program
        raise UsageError(f"no {what} {name}: {type(error).__name__}: {line(error)}", f"correct {module}") from error
    return value


def name_of(value: Any) -> str:
    """The name ``module:object`` by which an object can be `imported`, in a module of files rather than a notebook.
    Raises `UsageError` if there is none."""
    module, path = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    if not path:  # an object that a module has under a name, which need not be the module of its class
        modules = [(at, loaded) for at, loaded in [*sys.modules.items()] if not at.startswith("__")]
        modules.append(("__main__", sys.modules["__main__"]))
        names = (  # a notebook's _ is another thing soon
            (at, name)
            for at, loaded in modules
            for name, one in [*getattr(loaded, "__dict__", {}).items()]
            if one is value and not name.startswith("_")
        )
        module, path = next(names, (module, ""))
    name = f"{module}:{path}"
    if not _NAMED.fullmatch(name) or imported(name, "object") is not value:
        raise UsageError(
            f"{type(value).__name__} {path} has no name in a module",
            "define it at the top level of a module or notebook, or give its name: module:object",
        )
    return name


def line(error: BaseException) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def version_of(name: str) -> dict[str, str]:
    """What tells an object that was `imported` from another of its name: the ``version`` that it declares, in its own
    ``icl_version`` or ``__version__`` or in its module's ``icl_version``; else a hash of its ``sources``; and the
    releases of those `LIBRARIES` that they import. Of the time of its first use: an edit of a file counts from the next
    start, one in a notebook at once, but of the object's own source alone: not of what else the cells define."""
    return _version_of.__wrapped__(name) if name.startswith("__main__:") else _version_of(name)


@lru_cache(maxsize=64)
def _version_of(name: str) -> dict[str, str]:
    module, _, path = name.partition(":")
    loaded: Any = sys.modules[module]
    own = loaded
    for part in path.split("."):
        own = getattr(own, part)
    texts, outside = sources(module)
    releases = {}
    for library in sorted(outside & {*LIBRARIES}):
        with suppress(metadata.PackageNotFoundError):
            releases[library] = metadata.version(library)
    declared = [getattr(own, "icl_version", None), getattr(own, "__version__", None)]
    for version in (*declared, getattr(loaded, "icl_version", None)):
        if isinstance(version, str | int | float):
            return {"version": str(version), **releases}
    if module == "__main__":  # its file, if it has one, and what was typed
        texts[module] = _typed(own, name)
    digest = hashlib.blake2b(digest_size=8)
    for file, text in sorted(texts.items()):
        digest.update(f"{file}\0{len(text)}\0".encode() + text)
    return {"sources": digest.hexdigest(), **releases}


def _typed(own: Any, name: str) -> bytes:
    """The source of an object of a notebook or script. Raises `UsageError` if it cannot be read."""
    try:
        return inspect.getsource(own if hasattr(own, "__qualname__") else type(own)).encode()
    except (OSError, TypeError) as error:
        raise UsageError(
            f"the source of {name} cannot be read", "give it an attribute icl_version, or a module"
        ) from error


def sources(module: str) -> tuple[dict[str, bytes], set[str]]:
    """The source files of a loaded module by their path below the folder in which its top package lies: its own, and
    all in that folder that import statements in them name, run already or not; and the names of what else they import.
    Of an installed package only its own files count."""
    file = getattr(sys.modules[module], "__file__", None)
    if file is None:
        return {}, set()
    path = Path(file)
    root = path.parents[module.count(".") + (path.stem == "__init__")]
    own = {module.partition(".")[0]} if root.name in ("site-packages", "dist-packages") else None
    top = path.stem if module == "__main__" else module  # a script is no module of its name
    waiting, texts, outside = [top], dict[str, bytes](), set[str]()
    while waiting:
        dotted = waiting.pop()
        files = [*_files(root, dotted)] if own is None or dotted.partition(".")[0] in own else []
        if not files:
            outside.add(dotted.partition(".")[0])
        for file in files:
            place = file.relative_to(root)
            if place.as_posix() not in texts:
                texts[place.as_posix()] = text = file.read_bytes()
                waiting += _imports(text, place.parent.parts)
    return texts, outside


def _files(root: Path, dotted: str) -> Iterator[Path]:
    """The files that are loaded for a dotted name."""
    here = root
    for part in dotted.split("."):
        here = here / part
        yield from (file for file in (here / "__init__.py", here.with_suffix(".py")) if file.is_file())


def _imports(text: bytes, package: tuple[str, ...]) -> Iterator[str]:
    """The dotted names that import statements name, at any depth; a name may be that of a module."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            stem = ".".join([*base, *filter(None, [node.module])])
            yield from (f"{stem}.{alias.name}".lstrip(".") for alias in node.names)
