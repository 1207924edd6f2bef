"""Actions of ``icl-curate review``: keys, footer, help and command palette are generated from them.

Every tab, dialog and widget declares its own `Action`s beside the methods that implement them, see `Acting`. The name
of an action is also the name under which its keys can be changed, in ``keys.toml``
beside the user's ``config.toml``: ``"sources.prune" = "delete"``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.keys import KEY_NAME_REPLACEMENTS, Keys, key_to_character

from ..engine.base.errors import did_you_mean
from ..engine.base.files import read_regular
from ..engine.store.settings import user_config

KEYS = "keys.toml"
NAMED = frozenset({*(key.value for key in Keys), *KEY_NAME_REPLACEMENTS.values()})
_SHIFTED = re.compile(r"shift\+([^\W_])")
MODIFIERS = frozenset({"ctrl", "shift", "alt", "super", "hyper", "meta"})


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


def keymap(together: Sequence[Sequence[Action]], path: Path | None = None) -> tuple[dict[str, str], list[str]]:
    """The user's own keys by action, and what is wrong with their file, if anything. ``together``: actions that are
    there at the same time, so that no two of them can have one key."""
    path = path or user_config().with_name(KEYS)
    try:
        table = tomllib.loads(read_regular(path).decode())
    except FileNotFoundError:
        return {}, []
    except (OSError, ValueError, RecursionError) as error:
        return {}, [f"{path}: {error}"]
    actions = {action.name for some in together for action in some}
    keys, problems = dict[str, str](), []
    for name, value in _flat(table).items():
        named = _keys(value) if isinstance(value, str) else []
        unknown = next((key for key in named if not _is_key(key)), "")
        if name not in actions:
            problems.append(f"{path}: no action '{name}'{did_you_mean(name, actions)}")
        elif not named:
            problems.append(f"{path}: {name} must be a text such as 'x' or 'x,delete'")
        elif shifted := next(filter(None, map(_SHIFTED.fullmatch, named)), None):
            typed = "" if shifted[1].isdigit() else f", '{shifted[1].upper()}'"
            problems.append(f"{path}: {name}: no terminal sends '{shifted[0]}': write what it types{typed}")
        elif unknown:
            problems.append(f"{path}: {name}: there is no key '{unknown}'{did_you_mean(unknown, NAMED)}")
        else:
            keys[name] = ",".join(named)
    clashes = dict.fromkeys(clash for some in together for clash in _clashes(some, keys))
    return keys, problems + [f"{path}: {clash}" for clash in clashes]


def _keys(names: str) -> list[str]:
    """The keys of a list as Textual names them: ``question_mark`` for ``?``."""
    each = (key.strip() for key in names.split(","))
    return [binding.key for key in each if key for binding in Binding.make_bindings([Binding(key, "")])]


def _is_key(name: str) -> bool:
    """Whether Textual has a key of this name. Of a character it is the one of Unicode, which knows control characters
    (``esc``) and capitals (``Delete``), too."""
    *held, key = name.split("+")
    character = key_to_character(key) or ""
    return MODIFIERS.issuperset(held) and (
        key in NAMED or len(key) == 1 or (character.isprintable() and key == key.lower() and bool(character))
    )


def _clashes(actions: Sequence[Action], keys: Mapping[str, str]) -> Iterator[str]:
    """What the user's own keys take from other actions that are there; two that share a key as they come never meet."""
    for mine in (action for action in actions if action.name in keys):
        for key in _keys(keys[mine.name]):
            others = (other for other in actions if other.bound and other.name != mine.name)
            taken = [
                other.name
                for other in others
                if key in _keys(keys.get(other.name, other.keys)) and not {*_keys(other.keys)} & {*_keys(mine.keys)}
            ]
            if taken:
                yield f"'{key}' of {mine.name} is also the key of {', '.join(taken)}"


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """``[sources] prune = "x"`` is equivalent to ``"sources.prune" = "x"``."""
    flat: dict[str, object] = {}
    for name, value in table.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
