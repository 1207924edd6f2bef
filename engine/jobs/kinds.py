"""What can run in the background: the commands by the kind of job, and the classes of what they report.

An object names its kind; one of before, without a kind, is of the first class of its job that takes it, as reading is
strict. Classes are named by their modules, so that whoever starts or lists jobs loads none of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ..base.contract import Reported, named
from ..base.errors import UsageError
from ..base.registry import Registry


@dataclass(frozen=True, slots=True)
class Kind:
    """``title``: what goes on, in words. ``results``: kinds of what it reports, strictest first. ``needs``: it can be a
    job only with one of these options, and ``below``: not with one of these commands; it is refused with ``or_else``,
    an error and its fix. ``parts``: kinds of the jobs whose work it also does. ``tasks`` of its events in their order,
    with the share of its time that each takes, as far as they can be told before; others take 1."""

    command: tuple[str, ...]
    title: str
    results: tuple[str, ...]
    needs: tuple[str, ...] = ()
    or_else: tuple[str, str] = ("", "")
    parts: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    tasks: Mapping[str, int] = field(default_factory=lambda: {"ask": 20})

    def takes(self, name: Sequence[str], options: Sequence[str]) -> bool:
        """Whether a command with this name and these options is a job of this kind."""
        asked = not self.needs or bool({*self.needs} & {*options})
        return tuple(name) == self.command and asked and not {*self.below} & {*options[:1]}


def _training(what: str, *more: str, **of: Any) -> Kind:
    return Kind(("train", what), f"training {what}", (*more, f"train-{what}"), **of)


PART = "part"
"""The task of which each part of ``train all`` is one."""

KINDS: dict[str, Kind] = {
    "index": Kind(("index",), "index", ("index",), tasks={"read": 2, "duplicates": 1, "bm25-index": 1, "encode": 20}),
    **{f"train-{what}": _training(what) for what in ("sources", "topics", "fixed", "rows", "datamodel", "calibration")},
    "train-ranker": _training("ranker", "train-ranker-seeds", tasks={"train": 20}),
    "train-all": _training("all", tasks={PART: 20}, parts=("train-sources", "train-ranker", "train-topics")),
    "evaluate": Kind(("evaluate",), "evaluate", ("sweep", "evaluation")),
    "calibrate-query": Kind(("calibrate", "query"), "calibrate", ("calibration",)),
    "calibrate-keys": Kind(("calibrate", "keys"), "calibrate", ("key-ablation",)),
    "calibrate": Kind(
        ("calibrate",), "calibrate", ("key-ablation", "calibration-set", "calibration"), below=("runs",),
        or_else=("'calibrate runs' cannot run in the background", "it calls no LLM: run it as it is"),
    ),
    "tune": Kind(
        ("tune",), "tune", ("tuning",), below=("vote", "apply"), tasks={"tune": 20},
        or_else=("of tune, only tune itself can run in the background", "the others call no LLM: run them as they are"),
    ),
    "curate": Kind(
        ("curate",), "curate", ("curation",), ("--yes", "-y"),
        ("a job cannot ask whether the plan is right", "see it with --dry-run, then add --yes"), tasks={"curate": 20},
    ),
    "export": Kind(("export",), "export", ("export",), tasks={"export": 20}),
}  # fmt: skip
"""By the kind of a job, which stays when its command gets another name."""

RESULTS: Registry[str] = Registry(
    "results",
    {
        "curation": "curate.plan:CurationReport",
        "curation-plan": "curate.plan:CurationDryRun",
        "dry-run": "llm.cost:DryRun",
        "evaluation": "evaluate.results:EvaluationReport",
        "export": "export.results:ExportReport",
        "index": "index.results:IndexReport",
        "sweep": "evaluate.results:SweepReport",
        "train-all": "jobs.kinds:Parts",
        "train-datamodel": "checks.results:DatamodelRun",
        "train-fixed": "curate.fixed:FixedRun",
        "train-ranker": "trials.results:RankerRun",
        "train-ranker-seeds": "trials.results:RankerSeeds",
        "train-rows": "checks.results:RowRun",
        "train-sources": "trials.results:SourceRun",
        "tuning": "curate.results:TuneReport",
    },
)
"""Module and class, by their own kind, of all that a job or its dry run reports."""

COMMANDS = tuple(dict.fromkeys(kind.command[0] for kind in KINDS.values()))
"""First words of commands that can run as jobs."""


@dataclass(frozen=True, slots=True)
class JobCommand:
    """A command as typed: ``flags`` of the program before its name, and its own ``options``; ``kind`` is empty if it
    can be no job."""

    kind: str
    flags: tuple[str, ...]
    name: tuple[str, ...] = field(metadata=named("command"))
    options: tuple[str, ...]

    @classmethod
    def of(cls, words: Sequence[str]) -> JobCommand:
        """From its words, without the program's name."""
        at = next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))
        for name, kind in KINDS.items():
            end = at + len(kind.command)
            if kind.takes(words[at:end], words[end:]):
                return cls(name, tuple(words[:at]), kind.command, tuple(words[end:]))
        return cls("", tuple(words[:at]), tuple(words[at : at + 1]), tuple(words[at + 1 :]))

    @classmethod
    def typed(cls, text: str) -> JobCommand:
        """From a line with the program's name."""
        return cls.of(text.removeprefix("icl-curate ").split())

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.flags, *self.name, *self.options)

    def adding(self, *options: str) -> list[str]:
        """Its words with options right after its name: at its end, another one could take them for its value."""
        return [*self.flags, *self.name, *options, *self.options]

    def checked(self) -> JobCommand:
        """The same. Raises `UsageError` if it cannot be a job, whatever kind it says it is of."""
        kind = KINDS.get(self.kind)
        if kind and kind.takes(self.name, self.options):
            return self
        for other in KINDS.values():
            if self.name == other.command:
                raise UsageError(*other.or_else)
        raise UsageError(f"'{' '.join(self.name)}' cannot run in the background", f"use one of: {', '.join(COMMANDS)}")

    def __str__(self) -> str:
        """As a user would type it."""
        return shlex.join(["icl-curate", *self.words])


def read(data: object, kind: str = "") -> Reported:
    """What a job of this ``kind``, or a dry run, reported. Raises `ValueError` for anything else."""
    if isinstance(data, Mapping) and "kind" in data:
        return _class(str(data["kind"])).from_json(data)
    for before in KINDS[kind].results if kind in KINDS else ():
        with suppress(ValueError):
            return _class(before).from_json(data)
    raise ValueError("this is not what a job reports")


def _class(kind: str) -> type[Reported]:
    if kind not in RESULTS:
        raise ValueError(f"no job reports a '{kind}'")
    module, name = RESULTS[kind].split(":")
    found: type[Reported] = getattr(import_module(f"{__package__.rpartition('.')[0]}.{module}"), name)
    return found


@dataclass(frozen=True, slots=True)
class Parts(Reported):
    """What ``train all`` or its dry run reports, by part."""

    kind = "train-all"
    parts: Mapping[str, Reported]

    def as_json(self) -> dict[str, Any]:
        """The parts, each an object of its own kind."""
        return {"kind": self.kind, **{name: part.as_json() for name, part in self.parts.items()}}

    @classmethod
    def from_json(cls, data: Any) -> Parts:
        """From the output of `as_json`. Raises `ValueError` for anything else."""
        names = [name for name in ("sources", "ranker", "topics") if isinstance(data, Mapping) and name in data]
        if not names:
            raise ValueError("nothing was trained")
        return cls({name: read(data[name], f"train-{name}") for name in names})


def runs_of(result: Reported) -> list[int]:
    """Numbers of the runs that it reports; ``train all`` and a sweep have several."""
    if isinstance(result, Parts):
        return [number for part in result.parts.values() for number in runs_of(part)]
    if points := getattr(result, "points", ()):
        return [point.report.run for point in points]
    return [run for run in [getattr(result, "run", None)] if run is not None]
