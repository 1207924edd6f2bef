"""Actions of ``icl-curate review``: keys, footer, help and command palette are generated from them.

Every tab, dialog and widget declares its own `Action`s beside the methods that implement them, see `Acting`. The name
of an action is also the name under which its keys can be changed, in ``keys.toml``
beside the user's ``config.toml``: ``"sources.prune" = "delete"``.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType

from ..engine.base.files import read_regular
from ..engine.store.settings import user_config

KEYS = "keys.toml"


@dataclass(frozen=True, slots=True)
class Action:
    """``name`` is ``tab.verb``: the method ``action_verb`` of the widget that declares it (or ``call``, with its
    arguments). ``keys`` as Textual names them, separated by commas. ``about`` is one line for help and palette; ``cli``
    the equivalent command. Actions with ``footer`` off are shown in help and palette only; the keys of one that is not
    ``bound`` are read by the field that has the focus."""

    name: str
    keys: str
    label: str
    about: str
    cli: str = ""
    footer: bool = True
    call: str = ""
    bound: bool = True

    @property
    def run(self) -> str:
        return self.call or self.name.rpartition(".")[2]


def bindings(actions: Iterable[Action]) -> list[BindingType]:
    return [Binding(a.keys, a.run, a.label, show=a.footer, tooltip=a.about, id=a.name) for a in actions if a.bound]


FIND = Action(
    "frame.palette", "colon", "Find", "Find an action, command, source, label, row, setting or theme", call="find"
)
HELP = Action("frame.help", "question_mark,f1", "Help", "Show keys and terms of the tab", "icl-curate --help")


class Acting:
    """A widget whose keys are those of its ``ACTIONS``. Must be the first base class."""

    ACTIONS: ClassVar[tuple[Action, ...]] = ()
    BINDINGS: ClassVar[list[BindingType]]

    def __init_subclass__(cls, **options: bool) -> None:
        if "ACTIONS" in cls.__dict__:
            cls.BINDINGS = bindings(cls.ACTIONS)
        super().__init_subclass__(**options)


def keymap(actions: Sequence[str], path: Path | None = None) -> tuple[dict[str, str], list[str]]:
    """The user's own keys by action, and what is wrong with their file, if anything."""
    path = path or user_config().with_name(KEYS)
    try:
        table = tomllib.loads(read_regular(path).decode())
    except FileNotFoundError:
        return {}, []
    except (OSError, ValueError, RecursionError) as error:
        return {}, [f"{path}: {error}"]
    keys = {name: value for name, value in _flat(table).items() if name in actions and isinstance(value, str) and value}
    problems = []
    for name in _flat(table):
        if name not in actions:
            near = difflib.get_close_matches(name, actions, 1)
            problems.append(f"{path}: no action '{name}'" + (f"; did you mean '{near[0]}'?" if near else ""))
        elif name not in keys:
            problems.append(f"{path}: {name} must be a text such as 'x' or 'x,delete'")
    return keys, problems


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """``[sources] prune = "x"`` is equivalent to ``"sources.prune" = "x"``."""
    flat: dict[str, object] = {}
    for name, value in table.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
