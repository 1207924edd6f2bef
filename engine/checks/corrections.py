"""New outputs for suspects, as they can be chosen, and the reasons of decisions on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..store.decisions import Action
from .suspects import Suspect


@dataclass(frozen=True, slots=True)
class CorrectedOutputs:
    """New outputs, by id, as one option to choose: its name and a note."""

    name: str
    note: str
    outputs: Mapping[str, str]


def corrections(targets: Sequence[Suspect], labels: Mapping[str, int]) -> list[CorrectedOutputs]:
    """The corrections of the targets that can be chosen: what is suggested for each, then every label, with the number
    of its active rows."""
    suggested = {target.id: target.suggested for target in targets if target.suggested}
    options = []
    if len(targets) == 1 and suggested:
        options = [CorrectedOutputs(targets[0].suggested, "suggested", suggested)]
    elif suggested:
        note = f"{len(suggested):,} of {len(targets):,}" + ("; others stay" if len(suggested) < len(targets) else "")
        options = [CorrectedOutputs("as suggested", note, suggested)]
    for label, count in labels.items():
        outputs = {target.id: label for target in targets if target.evidence.output != label}
        if outputs and outputs not in [option.outputs for option in options]:
            options.append(CorrectedOutputs(label, f"{count:,}", outputs))
    return options


def others(targets: Sequence[Suspect], outputs: Mapping[str, str]) -> str:
    """What happens to the targets that get no new output."""
    left = len(targets) - len(outputs)
    return f"; the other {left:,} stay as they are" if left else ""


def reasons(verb: Action, targets: Sequence[Suspect]) -> list[str]:
    """The reason of each decision, for the history."""
    if verb == "prune":
        return [one.reason for one in targets]
    return [f"in review, not suspect: {', '.join(one.kinds)}" for one in targets]
