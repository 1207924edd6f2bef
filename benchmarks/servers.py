"""Servers that others wrote: what each command does with them, and how far their log-probabilities are from ``hf:``.

    python benchmarks/servers.py transformers FOLDER      # `transformers serve`
    python benchmarks/servers.py llama.cpp FILE.gguf      # llama-cpp-python's; compiled once, 10 to 60 min

The server's packages are installed into build/servers, once. It listens on 127.0.0.1 only, and ends with the script.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evidence import Workspace

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 300
"""Seconds until a server has to answer."""

PACKAGES = {
    "transformers": ("fastapi", "uvicorn"),
    "llama.cpp": ("llama-cpp-python", "fastapi", "uvicorn", "sse-starlette", "starlette-context", "pydantic-settings"),
}
QUERIES = 12


def command(kind: str, model: Path, port: int) -> list[str]:
    """How the server is started."""
    if kind == "transformers":
        serve = Path(sys.executable).with_name("transformers")
        return [str(serve), "serve", "--host", "127.0.0.1", "--port", str(port), str(model)]
    options = {"model": model, "host": "127.0.0.1", "port": port, "n_ctx": 4096, "logits_all": "true"}
    return [
        sys.executable,
        "-m",
        "llama_cpp.server",
        *(word for k, v in options.items() for word in (f"--{k}", str(v))),
    ]


def installed(kind: str, wheels: Path | None) -> Path:
    """The folder with the server's packages."""
    folder = ROOT / "build" / "servers" / kind
    if not folder.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
        wanted = [*([f"--find-links={wheels}"] if wheels else []), *PACKAGES[kind]]
        subprocess.run([*pip, f"--target={folder}", *wanted], check=True)
    return folder


@contextmanager
def served(kind: str, model: Path, wheels: Path | None) -> Iterator[str]:
    """The URL of a running server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(installed(kind, wheels)), os.getenv("PYTHONPATH", "")])
    }
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command(kind, model, port), env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            begun = time.monotonic()
            while not answers(url):
                if process.poll() is not None or time.monotonic() - begun > PATIENCE:
                    log.seek(0)
                    sys.exit(log.read().decode(errors="replace")[-3000:])
                time.sleep(0.5)
            print(f"up after {time.monotonic() - begun:.0f} s")
            yield url
        finally:
            process.terminate()


def answers(url: str) -> bool:
    """Whether anything is served, be it an error: `transformers serve` lists no models where no cache is."""
    try:
        urllib.request.urlopen(f"{url}/models", timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def tried(support: Workspace, facts: Workspace, llm: Sequence[object]) -> None:
    """Every command that asks, in short."""
    commands: dict[str, tuple[Workspace, tuple[object, ...]]] = {
        "llm check": (support, ("llm", "check")),
        "preview --answer": (support, ("preview", "where is my parcel", "-m", "bm25", "-k", 2, "--answer")),
        "evaluate": (support, ("evaluate", "-m", "zero,dense", "--limit", QUERIES, "-k", 3)),
        "train sources": (support, ("train", "sources", "--depth", 4, "--limit", QUERIES)),
        "calibrate": (facts, ("calibrate", "--split", "validation", "--limit", 2, "--rounds", 1)),
    }
    for name, (workspace, words) in commands.items():
        begun = time.monotonic()
        code, found = workspace.tried(*words, *llm, *(() if name == "llm check" else ("-j", 1)))
        print(f"{name:18} exit {code}, {time.monotonic() - begun:5.1f} s: {told(name, found)}", flush=True)


def told(name: str, found: Mapping[str, Any]) -> str:
    if found.get("error"):
        return f"{found['error']} ({found.get('fix')})"
    if name == "llm check":
        facts = found["capabilities"]
        return ", ".join(f"{key} {facts[key]}" for key in ("logprobs", "entropies", "scoring", "instructs"))
    if name == "preview --answer":
        return repr(found["answer"])
    if name == "evaluate":
        return ", ".join(f"{method} {row['accuracy']:.3f}" for method, row in found["methods"].items())
    return f"{found.get('calls')} calls, {found.get('failures', 0)} failures, {found.get('unusable', 0)} unusable"


def compared(facts: Path, specs: Mapping[str, Mapping[str, str]]) -> None:
    """Log-probabilities of the tokens that both LLMs generate, up to the first that differs."""
    from icl_curate.engine.llm.asking import prompt_for, request_for
    from icl_curate.engine.llm.budget import Budget
    from icl_curate.engine.llm.client import client_for
    from icl_curate.engine.llm.types import Answer
    from icl_curate.engine.store.demonstrations import queries, task_of
    from icl_curate.engine.store.settings import resolve
    from icl_curate.engine.store.workspace import Workspace as Stored

    workspace = Stored.open(facts)
    task, asked = task_of(workspace), queries(workspace, "validation", QUERIES)
    found = []
    for given in specs.values():
        settings = resolve(facts, dict(given)).settings
        with client_for(workspace, settings) as llm:
            prompts = [prompt_for(query, [], task, settings)[0] for query in asked]
            found.append(llm.ask([request_for(p, settings, llm.capabilities) for p in prompts], Budget()))
    gaps, tokens, same = [], 0, 0
    for one, other in zip(*found, strict=True):
        if not (isinstance(one, Answer) and isinstance(other, Answer)):
            continue
        same += one.text == other.text
        for a, b, x, y in zip(one.tokens, other.tokens, one.logprobs, other.logprobs, strict=False):
            if a != b:
                break
            gaps.append(abs(x - y))
            tokens += 1
    print(f"{same} of {len(asked)} answers equal", end="; ")
    if gaps:
        print(f"{tokens} tokens in common: log-probabilities differ by at most {max(gaps):.4f}")
    else:
        print("no log-probabilities to compare")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", choices=list(PACKAGES))
    parser.add_argument("model", type=Path)
    parser.add_argument("--wheels", type=Path, help="folder with wheels built before")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, served(given.server, given.model.resolve(), given.wheels) as url:
        name = str(given.model.resolve())
        os.environ |= {"OPENAI_API_KEY": "none", "ICL_CURATE_DTYPE": "float32"}
        support, facts = (Workspace(Path(temporary), world, "") for world in ("support", "facts"))
        for workspace in (support, facts):
            workspace.index(workspace.name)
        tried(support, facts, ("--llm", f"openai:{name}", "--base-url", url))
        compared(facts.folder, {"server": {"llm": f"openai:{name}", "base_url": url}, "hf": {"llm": f"hf:{name}"}})


if __name__ == "__main__":
    main()
