"""What a command costs before it computes: cold starts on the sample pool, and a job's first sign.

    python benchmarks/starts.py [--runs 5] [--other PYTHON] [--only NAME,NAME] [--llm hf:PATH] [--limit 40] [--rest 10]

Each command is a process of its own; shown are the medians of its seconds and CPU seconds. `encoding alone` is what
the vectors of ``index`` take in a loop of its own, once the encoder is loaded, `a script` the same with its imports, by
transformers. A job's `first sign` is from its start until its folder says that it runs, `first event` until it reports
progress; for the second job of a program a process waits; `its LLM alone` is what a local one computes for that.
``--other`` is the Python of another checkout's environment: the two take turns, and the ratio to it is shown.
CPU time says more than wall time where the machine has other work.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent.parent / "sample_data" / "support"
POOL = sorted(map(str, (DATA / "pool").glob("*.jsonl")))
QUERIES = ["--validation", str(DATA / "validation.jsonl"), "--test", str(DATA / "test.jsonl")]
ASKED = "my parcel still has not come"
COMMANDS = {
    "index": ["index", *POOL, *QUERIES],
    "status": ["status"],
    "preview by dense": ["preview", ASKED, "-m", "dense"],
    "train sources --dry-run": ["train", "sources", "--dry-run"],
    "curate --dry-run": ["curate", "--max-calls", "1000", "--dry-run"],
}
JOB = ["evaluate", "-m", "zero", "--limit"]
REST, LIMIT = "STARTS_REST", "STARTS_LIMIT"

Times = dict[str, float]
"""Seconds, and of a process its CPU seconds, by what was timed."""


def texts() -> list[str]:
    files = [*POOL, *QUERIES[1::2]]
    return [json.loads(line)["input"] for file in files for line in Path(file).read_text().splitlines()]


def encoding(_: Path) -> Times:
    from icl_curate.engine.retrieval.encoder import load_encoder

    encoder = load_encoder()
    encoder.encode(texts()[:64])
    begun, used = time.perf_counter(), time.process_time()
    encoder.encode(texts())
    return {"encoding alone": time.perf_counter() - begun, "CPU encoding alone": time.process_time() - used}


def script(_: Path) -> Times:
    """What a user would write."""
    import torch
    from icl_curate.engine.retrieval.weights import default_folder
    from transformers import AutoModel, AutoTokenizer

    tokeniser, model = (kind.from_pretrained(default_folder()) for kind in (AutoTokenizer, AutoModel))
    ordered = sorted(texts(), key=len)
    with torch.inference_mode():
        for start in range(0, len(ordered), 32):
            batch = tokeniser(ordered[start : start + 32], padding=True, truncation=True, return_tensors="pt")
            (model(**batch).last_hidden_state * batch["attention_mask"][..., None]).sum(1)
    return {}


def job(folder: Path) -> Times:
    """The first job of a program, about the test queries, and its second, about the validation queries, for which a
    process waits."""
    from icl_curate.engine.jobs.start import PROGRAM, environment

    try:
        from icl_curate.engine.jobs.standby import Standby
    except ImportError:  # of an older checkout
        return job_times("job", copied(folder, "jobs"), "test")
    there = copied(folder, "jobs")
    standby = Standby(PROGRAM, lambda: environment(there))
    found = job_times("job", there, "test", standby=standby)
    standby.prepare()
    time.sleep(float(os.environ[REST]))
    return found | job_times("second job", there, "validation", standby=standby)


def job_times(what: str, folder: Path, split: str, **more: Any) -> Times:
    from icl_curate.engine.jobs.folder import read
    from icl_curate.engine.jobs.follow import recorded_events
    from icl_curate.engine.jobs.kinds import JobCommand
    from icl_curate.engine.jobs.start import start
    from icl_curate.engine.store.workspace import Workspace

    begun, times = time.perf_counter(), Times()
    started = start(Workspace.open(folder), JobCommand.of([*JOB, os.environ[LIMIT], "--split", split]), **more).folder
    while (now := read(started)).live:
        if now.state == "running":
            times.setdefault(f"{what}: first sign", time.perf_counter() - begun)
        if recorded_events(started)[0]:
            times.setdefault(f"{what}: first event", time.perf_counter() - begun)
        time.sleep(0.005)
    assert now.state == "done", now.error
    return {**times, f"{what}: end": time.perf_counter() - begun}


def llm_alone(folder: Path) -> Times:
    """What a local LLM computes for the second job, its weights loaded."""
    from icl_curate.engine.backends.hf.model import LocalModel
    from icl_curate.engine.evaluate.compare import Evaluation, EvaluationPlan
    from icl_curate.engine.llm.budget import Budget
    from icl_curate.engine.llm.client import client_for
    from icl_curate.engine.store.settings import resolve
    from icl_curate.engine.store.workspace import Workspace

    settings, compute, spent = resolve(folder, {}).settings, LocalModel.compute, [0.0]

    def timed_compute(*given: Any) -> None:
        begun = time.perf_counter()
        compute(*given)
        spent[0] += time.perf_counter() - begun

    LocalModel.compute = timed_compute  # type: ignore[method-assign]
    with client_for(Workspace.open(copied(folder, "alone")), settings) as llm:
        for split in ("test", "validation"):
            spent[0] = 0.0
            plan = EvaluationPlan(methods=("zero",), split=split, limit=int(os.environ[LIMIT]))  # type: ignore[arg-type]
            Evaluation.prepare(llm, plan).ask(Budget())
    return {"its LLM alone": spent[0]}


def copied(folder: Path, name: str) -> Path:
    """A copy in which nothing has been asked yet."""
    there = folder.parent / name
    shutil.rmtree(there, ignore_errors=True)
    shutil.copytree(folder, there)
    return there


PARTS: dict[str, Callable[[Path], Times]] = {"encoding": encoding, "a script": script, "job": job, "llm": llm_alone}


def timed(program: list[str]) -> tuple[Times, float, float]:
    """What a process printed of itself, its seconds and its CPU seconds."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begun = time.perf_counter()
        child = subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        err.seek(0)
        assert child.returncode == 0, err.read().decode()
        out.seek(0)
        printed = out.read().decode().splitlines()
    return json.loads(printed[-1]) if "--part" in program else {}, seconds, used.ru_utime + used.ru_stime


def times_of(python: str, name: str, folder: Path) -> Times:
    if name in COMMANDS:
        place = folder / f"new-{time.monotonic_ns()}" if name == "index" else folder / "w"
        _, seconds, used = timed([python, "-P", "-m", "icl_curate.cli", *COMMANDS[name], "-w", str(place)])
        return {name: seconds, f"CPU {name}": used}
    found, seconds, used = timed([python, __file__, "--part", name, str(folder / "w")])
    return found or {name: seconds, f"CPU {name}": used}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--other", help="The Python of another checkout.")
    arguments.add_argument("--only", default="", help=f"Of {', '.join([*COMMANDS, *PARTS])}.")
    arguments.add_argument("--llm", default="offline", help="Of the jobs.")
    arguments.add_argument("--limit", default="40", help="Queries of a job.")
    arguments.add_argument("--rest", default="10", help="Seconds between the first job and the second.")
    arguments.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.part:
        print(json.dumps(PARTS[given.part[0]](Path(given.part[1]))))
        os._exit(0)  # as a command ends
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "ICL_CURATE_"))]:
        del os.environ[name]
    pythons = [sys.executable, *filter(None, [given.other])]
    names = [*filter(None, given.only.split(","))] or [*COMMANDS, *PARTS]
    if given.llm == "offline" and "llm" in names:
        names.remove("llm")
    with tempfile.TemporaryDirectory(prefix="starts-") as kept:
        folder = Path(kept)
        os.environ |= {"ICL_CURATE_CONFIG": str(folder / "none.toml"), "ICL_CURATE_LLM": given.llm}
        os.environ |= {REST: given.rest, LIMIT: given.limit}
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")  # whatever the environment and the checkouts have
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        timed([sys.executable, "-P", "-m", "icl_curate.cli", *COMMANDS["index"], "-w", str(folder / "w")])
        print(
            f"{'':34}{'s':>9}{'CPU s':>9}" + ("   other:" + f"{'s':>9}{'CPU s':>9}{'ratio':>9}" if given.other else "")
        )
        for name in names:
            for python in pythons:
                times_of(python, name, folder)  # compiled and in memory
            runs = [[times_of(python, name, folder) for python in pythons] for _ in range(given.runs)]
            for what in runs[0][0]:
                if not what.startswith("CPU ") and what in run_names(runs):
                    show(what, runs)


def show(what: str, runs: list[list[Times]]) -> None:
    """The medians by Python, and that of the ratios between them: of CPU seconds where there are such."""
    line, used = f"{what:34}", f"CPU {what}"
    for i in range(len(runs[0])):
        columns = (
            f"{statistics.median(run[i][name] for run in runs):9.2f}" if name in run_names(runs) else f"{'':9}"
            for name in (what, used)
        )
        line += " " * 9 * (i > 0) + "".join(columns)
    if len(runs[0]) > 1:
        name = used if used in run_names(runs) else what
        line += f"{statistics.median(mine[name] / other[name] for mine, other in runs):9.2f}"
    print(f"{line}   load {os.getloadavg()[0]:.1f}", flush=True)


def run_names(runs: list[list[Times]]) -> set[str]:
    """What every Python timed."""
    return {*runs[0][0]}.intersection(*(times for run in runs for times in run))


if __name__ == "__main__":
    main()
