"""The prompts of a promptfoo config."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...base.errors import UsageError
from .chats import chat, messages, settings
from .files import Beside, value_of
from .pieces import Draft, Items


def prompts(config: Mapping[str, Any], files: Beside) -> list[str | list[Any] | UsageError]:
    """The prompts of a config, as texts or messages, which may lie in ``files``; for a program or what lies elsewhere
    the error to raise if it is wanted. Raises `UsageError` for one that is no text."""
    given = config["prompts"]
    entries = [given] if isinstance(given, (str, Mapping)) else given
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{files.path.name}: prompts is no list", "list texts, or files as file://prompt.txt")
    return [text for entry in entries for text in _of_entry(entry, files)]


def _of_entry(entry: object, files: Beside) -> list[str | list[Any] | UsageError]:
    if isinstance(entry, Mapping):
        entry = entry.get("raw") or entry.get("id")
    if not isinstance(entry, str):
        raise UsageError(f"{files.path.name}: a prompt is no text: {str(entry)[:60]}", "write it as a text")
    if "\n" in entry or not re.search(r"^(file|exec):|^\w+://|^[^{}]*\.\w{2,5}(:\w+)?$", entry):
        return [entry]
    if not re.fullmatch(r"(file://)?[^:]+\.(txt|json|j2|md|ya?ml)", entry):
        what = f"the prompt {entry} is a program or comes from elsewhere, and nothing is run or fetched"
        return [UsageError(what, "write it as a template, or name the program: --template MODULE:NAME")]
    named, text = files.read(entry)
    if named.suffix == ".txt":
        parts = re.split(r"^[ \t]*---[ \t]*$", text.replace("\r\n", "\n"), flags=re.MULTILINE)
        return [*filter(None, map(str.strip, parts))]
    value = value_of(named, text)
    return [value if isinstance(value, list) else text]


def promptfoo(prompt: str | list[Any], config: Mapping[str, Any], draft: Draft) -> Items:
    """One of the prompts, and comments on what the config sends beside it."""
    items: Items = []
    providers = config.get("providers")
    for provider in providers if isinstance(providers, list) else ():
        if isinstance(provider, Mapping) and isinstance(provider.get("config"), Mapping):
            items += settings(provider["config"], f" of {provider.get('id')}", draft)
    default = config.get("defaultTest")
    if isinstance(default, Mapping) and isinstance(default.get("vars"), Mapping):
        draft.notes.append(f"defaultTest sets {', '.join(map(str, default['vars']))}: fields of each query here")
    return [*items, *(messages(prompt, draft) if isinstance(prompt, list) else chat(prompt, draft))]
