"""SIGKILL at any moment of any command that writes: what was acknowledged, kept or paid for must be there afterwards.

Three kinds of moments: a random time, the N-th change of the file system that Python makes, and the write that would
make a file longer than N bytes (SIGXFSZ, which nothing handles here, so it ends the process as SIGKILL would).
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .harness import (
    Commands,
    Result,
    Tally,
    complaint,
    holds_key,
    scratch,
    wait_until,
    wanted,
)
from .server import StubServer
from .world import (  # fmt: skip
    LABELS,
    MARKER,
    World,
    asking,
    decisions,
    job_states,
    look,
    must,
    queries,
    rows,
    same,
    scrub,
    seen,
    with_key,
    write_rows,
)

FLIGHTS = 4
DELAY = 0.03
FORMATS = {"jsonl": "o.jsonl", "csv": "o.csv", "parquet": "o.parquet", "chat": "o.jsonl", "dspy": "o.json", "hf": "o",
           "calibration": "o.jsonl"}  # fmt: skip


@dataclass
class Place:
    """Where one case happens."""

    world: World
    folder: Path
    workspace: Path
    server: StubServer

    @property
    def commands(self) -> Commands:
        return self.world.commands

    def run(self, *words: object, **more: Any) -> Result:
        return self.commands.run(*words, "-w", self.workspace, environment=with_key(6, 20.0), **more)


@dataclass
class Scenario:
    """A command to be killed. ``prepare`` comes before it, ``check`` gives the problems afterwards, with what the
    command had said. ``learnt`` is what `rehearse` saw: the undisturbed end."""

    name: str
    template: str
    words: Callable[[Place], Sequence[object]]
    check: Callable[[Scenario, Place, Result], list[str]]
    times: int
    events: int = 0
    sizes: tuple[int, ...] = ()
    prepare: Callable[[Place], None] = lambda place: None
    views: tuple[str, ...] = ()
    told: Callable[[Mapping[str, Any]], Any] = lambda told: None
    seconds: float = 1.0
    learnt: Any = None

    def rehearse(self, world: World) -> None:
        """Run it undisturbed: how long it takes and what it leaves."""
        with scratch(world.root, "rehearsal") as folder, at(world, self.template, folder) as place:
            self.prepare(place)
            done = must(place.run(*self.words(place), limit=180))
            self.seconds = done.seconds
            self.learnt = (
                self.told(done.json),
                seen(place.commands, place.workspace, self.views),
                place_decisions(place),
            )


class at(ExitStack):  # noqa: N801 - reads as one
    """A place with a workspace copied from a template (``new``: none yet) and a server of its own."""

    def __init__(self, world: World, template: str, folder: Path) -> None:
        super().__init__()
        self.given = (world, template, folder)

    def __enter__(self) -> Place:  # type: ignore[override]
        world, template, folder = self.given
        workspace = folder / "w"
        if template != "new":
            world.copy(getattr(world, template), folder)
        return Place(world, folder, workspace, self.enter_context(StubServer(LABELS, MARKER, DELAY)))


def place_decisions(place: Place) -> list[tuple[str, ...]]:
    return decisions(place.commands, place.workspace)


# what is checked


def opens(place: Place) -> list[str]:
    found = look(place.commands, place.workspace, "status")
    return [complaint(found) or (f"the workspace does not open: {found.line}" if found.code else "")]


def kept_decisions(scenario: Scenario, place: Place) -> list[str]:
    """Those of the template, and after an acknowledged decision that one too."""
    found, before = place_decisions(place), _before(scenario)
    return [] if _names(found)[: len(before)] == before else [f"decision lost: {found}"]


def _before(scenario: Scenario) -> list[tuple[str, ...]]:
    return [("prune", "archive", "first"), ("prune", "d3", "second")] if scenario.template in ("plain", "full") else []


def _names(found: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [decision[:3] for decision in found]


def ends_well_again(scenario: Scenario, place: Place, words: Sequence[object] | None = None) -> list[str]:
    """The same command afterwards gives what it gives undisturbed."""
    again = place.run(*(words or scenario.words(place)), limit=180)
    if again.code:
        return [complaint(again) or f"does not go on: exit code {again.code}: {again.line}"]
    told, views, _ = scenario.learnt
    problems = [] if scenario.told(again.json) == told else ["silent difference in the result after going on"]
    for view in scenario.views:
        shown = look(place.commands, place.workspace, view)
        if shown.code or complaint(shown):
            problems.append(f"{view}: {complaint(shown) or shown.line}")
        elif not same(scrub(shown.json), views[view]):
            problems.append(f"silent difference in {view} after going on")
    return problems


def check_index(scenario: Scenario, place: Place, killed: Result) -> list[str]:
    found = look(place.commands, place.workspace, "status")
    problems = [complaint(found)]
    if scenario.template != "new" and found.code:
        problems.append(f"the workspace does not open: {found.line}")
    return problems + ends_well_again(scenario, place) + (kept_decisions(scenario, place) if not any(problems) else [])


def check_decision(scenario: Scenario, place: Place, killed: Result) -> list[str]:
    problems = opens(place)
    if any(problems):
        return problems
    found, after = place_decisions(place), scenario.learnt[2]
    acknowledged = bool(killed.json) and killed.out.endswith("\n")
    if found == after:
        return []
    if acknowledged or _names(found) != _names(after)[: len(found)] or len(found) < len(after) - 1:
        return [f"decision lost: {found}, acknowledged {acknowledged}"]
    return ends_well_again(scenario, place)


def check_paid(scenario: Scenario, place: Place, killed: Result) -> list[str]:
    problems = opens(place)
    if any(problems):
        return problems
    problems += ends_well_again(scenario, place) + kept_decisions(scenario, place)
    return problems + paid(place.server) + key_kept(place)


def paid(server: StubServer) -> list[str]:
    if server.paid_twice() > FLIGHTS:
        return [f"paid twice: {server.paid_twice()} answers, {FLIGHTS} in flight"]
    return []


def key_kept(place: Place) -> list[str]:
    return [f"the key is in {path}" for path in holds_key(place.workspace)]


def check_export(scenario: Scenario, place: Place, killed: Result) -> list[str]:
    target = _target(scenario, place)
    problems = [agree(target), *ends_well_again(scenario, place), agree(target)]
    hidden = [path.name for path in target.parent.iterdir() if path.name.startswith(".")]
    return problems + ([f"left behind: {', '.join(hidden)}"] if hidden else [])


def agree(target: Path) -> str:
    """Whether the files and their manifest are of one export. A missing manifest claims nothing."""
    manifest = target / "manifest.json" if target.is_dir() else target.with_name(target.name + ".manifest.json")
    if not target.exists():
        return "the file that stood there is gone"
    if not manifest.exists():
        return ""
    try:
        files = json.loads(manifest.read_text())["files"]
    except (ValueError, KeyError) as error:
        return f"the manifest is damaged: {error}"
    folder = target if target.is_dir() else target.parent
    for name, digest in files.items():
        path = folder / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            return f"silent: {name} is not what its manifest says"
    return ""


def _target(scenario: Scenario, place: Place) -> Path:
    return place.folder / "out" / FORMATS[scenario.name.split()[1]]


# the commands


def _index_new(place: Place) -> Sequence[object]:
    return place.world.index(place.workspace, "--no-encode", "--json")


def _index_new_encoded(place: Place) -> Sequence[object]:
    return place.world.index(place.workspace, "--json")


def _changed(place: Place) -> None:
    made = [row for i, row in enumerate(rows(80)) if i % 7] + rows(12, 9, "n")
    write_rows(place.folder / "pool.jsonl", made)
    write_rows(place.folder / "validation.jsonl", queries(16, 1, "v"))


def _index_changed(place: Place) -> Sequence[object]:
    return ("index", place.folder / "pool.jsonl", "--validation", place.folder / "validation.jsonl", "--json")


def _index_changed_plain(place: Place) -> Sequence[object]:
    return (*_index_changed(place), "--no-encode")


def _exported_before(scenario_format: str) -> Callable[[Place], None]:
    def prepare(place: Place) -> None:
        (place.folder / "out").mkdir()
        target = place.folder / "out" / FORMATS[scenario_format]
        must(place.run("export", target, "-f", scenario_format))
        must(place.run("prune", "--source", "forum"))
        if scenario_format == "calibration":  # what it exports comes from calibration, not from the pool
            must(place.run("calibrate", "--split", "validation", "--limit", "4", limit=120))

    return prepare


def _methods(told: Mapping[str, Any]) -> Any:
    return {name: scrub(row.get("accuracy")) for name, row in told.get("methods", {}).items()}


def _sources(told: Mapping[str, Any]) -> Any:
    return None


def _prepare_prune(place: Place) -> None:
    must(place.run("prune", "--source", "crowd", "--reason", "third"))


def scenarios(share: float) -> list[Scenario]:
    """All of them; ``share`` scales the number of kills."""

    def n(count: int) -> int:
        return max(1, round(count * share))

    sizes = (0, 1, 4095, 4096, 8192, 12288, 12289, 20480, 65536, 262144, 262145, 270336, 524288, 786432, 1 << 20)
    found = [
        Scenario("index new", "new", _index_new, check_index, n(10), n(8), sizes[:: max(1, round(1 / share))],
                 views=("status", "demos", "preview bm25", "preview near")),
        Scenario("index new encoded", "new", _index_new_encoded, check_index, n(5), n(6), (),
                 views=("status", "preview dense", "preview bm25", "preview dpp")),
        Scenario("index changed", "full", _index_changed, check_index, n(8), n(8), (4096, 1 << 20, 3 << 20)[: n(3)],
                 prepare=_changed,
                 views=("status", "preview dense", "preview bm25", "preview set-bsr", "preview topick")),
        Scenario("index changed plain", "plain", _index_changed_plain, check_index, n(6), n(4), (), prepare=_changed,
                 views=("status", "preview bm25", "preview near", "demos")),
        Scenario("prune", "full", lambda p: ("prune", "--source", "crowd", "--reason", "third", "--json"),
                 check_decision, n(9)),
        Scenario("prune many", "plain", lambda p: ("prune", *[w for i in range(40, 80) for w in ("--demo", f"d{i}")],
                 "--json"), check_decision, n(5)),
        Scenario("undo", "full", lambda p: ("undo", "--json"), check_decision, n(7), prepare=_prepare_prune),
        Scenario("restore", "full", lambda p: ("restore", "--source", "archive", "--json"), check_decision, n(7)),
        Scenario("evaluate", "plain", lambda p: asking(p.server, "evaluate", "-m", "zero,random,bm25", "--seeds", "2",
                 "--json"), check_paid, n(14), told=_methods),
        Scenario("train sources", "plain", lambda p: asking(p.server, "train", "sources", "-b", "5", "--ranking",
                 "bm25", "--limit", "12", "--json"), check_paid, n(12), views=("sources",)),
        Scenario("train ranker", "encoded", lambda p: asking(p.server, "train", "ranker", "--epochs",
                 "1", "--limit", "10", "--batch", "5", "--json"), check_paid, n(9), n(4),
                 views=("preview ranker", "ledger")),
        Scenario("train topics", "encoded", lambda p: asking(p.server, "train", "topics", "--sample", "40",
                 "--questions", "24", "--epochs", "3", "--json"),
                 check_paid, n(8), n(5), views=("preview topick", "gaps")),
        Scenario("calibrate", "plain", lambda p: asking(p.server, "calibrate", "--split", "validation", "--limit", "3",
                 "-r", "2", "-m", "bm25", "--json"), check_paid, n(9)),
    ]  # fmt: skip
    for form in FORMATS:
        split = ("--split", "validation") if form == "calibration" else ()
        more = Scenario(
            f"export {form}", "full",
            lambda p, form=form, split=split: (  # type: ignore[misc]
                "export", p.folder / "out" / FORMATS[form], "-f", form, *split, "--force", "--json"),
            check_export, n(2), n(9), prepare=_exported_before(form),
        )  # fmt: skip
        found.append(more)
    return found


# the kills


def moments(scenario: Scenario) -> list[tuple[str, float]]:
    return [
        *(("time", float(i)) for i in range(scenario.times)),
        *(("event", float(i)) for i in range(scenario.events)),
        *(("size", float(size)) for size in scenario.sizes),
    ]


def kill_once(world: World, scenario: Scenario, kind: str, number: float, seed: int) -> tuple[list[str], bool, int]:
    """One case: its problems, whether the kill came in time, and answers paid twice."""
    draw = random.Random(f"{seed} {scenario.name} {kind} {number}")
    late = 1.0
    for _ in range(4):  # a moment after the end is drawn again, earlier
        with scratch(world.root, "kill") as folder, at(world, scenario.template, folder) as place:
            scenario.prepare(place)
            limits = (
                {"kill_event": int(number)}
                if kind == "event"
                else {"file_limit": int(number)}
                if kind == "size"
                else {}
            )
            words = (*scenario.words(place), "-w", place.workspace)
            running = place.commands.start(*words, environment=with_key(6, 20.0), **limits)
            if kind == "time":
                swept = (number + draw.random()) / max(scenario.times, 1)
                running.ended.wait(late * scenario.seconds * swept)
                running.kill()
            killed = running.wait(120)
            if killed.code not in (-9, -25):
                if kind != "time":
                    return [complaint(killed)] if kind == "event" else [], False, 0
                late *= 0.6
                continue
            try:
                problems = scenario.check(scenario, place, killed)
            except RuntimeError as error:  # a command that must work did not
                problems = [f"does not go on: {str(error)[-300:]}"]
            return problems, True, place.server.paid_twice()
    return [], False, 0


def run(world: World, seed: int, short: bool, workers: int) -> list[Tally]:
    tally = Tally("kills")
    share = 0.12 if short else 1.0
    planned = [scenario for scenario in scenarios(share) if wanted(scenario.name)]
    twice = 0

    def ready(scenario: Scenario) -> str:
        try:
            scenario.rehearse(world)
        except RuntimeError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(workers) as several:
        failed = list(several.map(ready, planned))
        for scenario, why in zip(planned, failed, strict=True):
            if why:
                tally.case(scenario.name, [f"does not run undisturbed: {why}"])
        cases = [
            (scenario, kind, number)
            for scenario, why in zip(planned, failed, strict=True)
            if not why
            for kind, number in moments(scenario)
        ]
        done = several.map(lambda case: kill_once(world, *case, seed), cases)
        for (scenario, kind, number), (problems, in_time, again) in zip(cases, done, strict=True):
            if not in_time and not any(problems):
                continue
            twice += again
            moment = {
                "time": f"at {number:g}/{scenario.times} of its time",
                "event": f"before change {number:g} of a file",
                "size": f"at byte {number:g} of a file",
            }[kind]
            tally.case(f"{scenario.name}, killed {moment}", problems)
    if wanted("jobs"):
        job_kills(world, tally, max(1, round(16 * share)), seed)
    tally.counts["answers paid twice, within those in flight"] += twice
    tally.notes.append(f"answers paid twice over all kills: {twice}; in flight at each kill: at most {FLIGHTS}")
    return [tally]


def job_kills(world: World, tally: Tally, count: int, seed: int) -> None:
    """Starting, running, cancelling and resuming of jobs, killed; afterwards the job is resumed to its end."""
    draw = random.Random(f"{seed} jobs")
    for i in range(count):
        what = ("start", "work", "cancel", "resume")[i % 4]
        with scratch(world.root, "job") as folder, at(world, "plain", folder) as place:
            try:
                problems = kill_job(place, what, draw)
            except RuntimeError as error:
                problems = [f"does not go on: {str(error)[-300:]}"]
            tally.case(f"jobs {what}, killed ({i})", problems)
            tally.counts["answers paid twice, within those in flight"] += min(place.server.paid_twice(), FLIGHTS)


def kill_job(place: Place, what: str, draw: random.Random) -> list[str]:
    words = (*asking(place.server, "evaluate", "-m", "zero,random,bm25"), "--background", "-w", place.workspace)
    environment = with_key(6, 20.0)
    starting = place.commands.start(*words, environment=environment)
    if what == "start":
        starting.ended.wait(draw.uniform(0.05, 0.8))
        starting.kill()
        starting.wait()
    else:
        must(starting.wait())
        wait_until(lambda: len(place.server.calls) > draw.randint(0, 30), 30)
        kill_job_process(place)
    if what in ("cancel", "resume"):
        doing = place.commands.start("jobs", what, "-w", place.workspace, environment=environment)
        doing.ended.wait(draw.uniform(0.02, 0.6))
        doing.kill()
        doing.wait()
    problems = [*opens(place), complaint(look(place.commands, place.workspace, "jobs"))]
    if any(problems):
        return problems
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        states = job_states(place.commands, place.workspace)
        if "done" in states or not states:
            break
        if not {"queued", "running"} & set(states):
            resumed = place.run("jobs", "resume")
            if resumed.code:
                return [complaint(resumed) or f"the job does not go on: {resumed.line}"]
        time.sleep(0.2)
    else:
        problems.append(f"no end of the job: {states}")
    if not states:  # killed before there was a job: nothing was acknowledged
        problems += [] if starting.status else ["answer lost: the job that was acknowledged is not there"]
    return (
        problems
        + kept_decisions(Scenario("jobs", "plain", lambda p: (), check_paid, 0), place)
        + paid(place.server)
        + key_kept(place)
    )


def kill_job_process(place: Place) -> None:
    import os
    import signal
    from contextlib import suppress

    for job in look(place.commands, place.workspace, "jobs").json.get("jobs", []):
        if job.get("pid") and job["state"] in ("queued", "running"):
            with suppress(ProcessLookupError):
                os.killpg(job["pid"], signal.SIGKILL)
    time.sleep(0.1)
