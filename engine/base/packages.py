"""Packages that only some commands need: what to say where one is not installed.

``icl-curate-core`` requires what serves a pool and curates it against an LLM behind an API, ``icl-curate`` the rest.
What needs the rest calls `require` before it starts, and any other import that fails reaches the user by `lacking`.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .errors import UsageError

try:
    VERSION = version("icl-curate-core")
except PackageNotFoundError:  # a checkout that was never installed
    VERSION = "0+unknown"

SAMPLE_DATA = Path(__file__).parents[2] / "sample_data"
"""A pool and a set of facts, which come with the package."""

_TORCH = "pip install torch"
_CURATE = "pip install 'icl-curate-core[{}]'"
_HEAVY = "pip install 'icl-curate[{}]'"

HOW: dict[str, str] = {
    "torch": _TORCH,
    "transformers": "pip install transformers",
    "sentence_transformers": "pip install sentence-transformers",
    "numba": "pip install numba",
    "pyarrow": "pip install pyarrow",
    "textual_serve": _CURATE.format("serve"),
    "starlette": _CURATE.format("http"),
    "uvicorn": _CURATE.format("http"),
    "httptools": _CURATE.format("http"),
    "ray": _CURATE.format("ray"),
    "openpyxl": _CURATE.format("excel"),
    "datasets": _CURATE.format("hub"),
    "peft": _HEAVY.format("finetune"),
    "gguf": _HEAVY.format("gguf"),
    "accelerate": _HEAVY.format("gguf"),
    "pandas": _CURATE.format("notebook"),
    "matplotlib": _CURATE.format("notebook"),
    "polars": "pip install polars",
}
"""Modules and the command that installs each."""


def installed(module: str) -> bool:
    """Whether a module can be imported; it is not loaded."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def require(purpose: str, *modules: str) -> None:
    """Raise `UsageError` if one of the ``modules`` is not installed; call it before anything is loaded or paid for."""
    missing = [module for module in modules if not installed(module)]
    if missing:
        raise _error(purpose, missing)


def arrow(purpose: str) -> Any:
    """The module ``pyarrow``, which only files of its own formats need. Raises `UsageError` if it is not installed.

    It does without pandas, which it would import for its first array, a quarter of a second, and by whose types it
    would read times in nanoseconds: what is read must not depend on whether pandas is installed.
    """
    require(purpose, "pyarrow")
    import pyarrow

    _spare_pandas(pyarrow)
    return pyarrow


class _Without(MetaPathFinder):
    """Finds nothing, and lets no other finder find the module ``spared``."""

    def __init__(self, spared: str) -> None:
        self.spared = spared

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == self.spared:
            raise ModuleNotFoundError(name)


@cache
def _spare_pandas(pyarrow: Any) -> None:
    """Let pyarrow look for pandas once, and find none; what imports pandas itself still can."""
    if "pandas" not in sys.modules:
        finder = _Without("pandas")
        sys.meta_path.insert(0, finder)
        try:
            pyarrow.array([])
        finally:
            sys.meta_path.remove(finder)


def spare_aiohttp() -> None:
    """Let openai be imported without its client over aiohttp, which takes a third of that time where aiohttp is
    installed, and which we do not use. Only for a process of our own: others may use it."""
    sys.meta_path.insert(0, _Without("openai._vendor.httpx_aiohttp"))


def lacking(error: ImportError) -> UsageError | None:
    """The error for an import that failed because a package of `HOW` is not installed; None for any other."""
    module = (error.name or "").partition(".")[0]
    return _error("this", [module]) if module in HOW and not installed(module) else None


def _error(purpose: str, modules: list[str]) -> UsageError:
    """One ``pip install`` for all of them."""
    names = [module.replace("_", "-") for module in modules]
    listed = " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])
    are = "are" if names[1:] else "is"
    commands = dict.fromkeys(HOW[module].removeprefix("pip install ") for module in modules)
    return UsageError(f"{purpose} needs {listed}, which {are} not installed", f"pip install {' '.join(commands)}")
