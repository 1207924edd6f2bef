"""Does the prompt matter for what should be pruned? One dirty pool, curated and served under several templates.

    python benchmarks/prompts.py DATA WORK --llm hf:FILE.gguf [--templates auto,plain,xml] [--calls 300] [--queries 100]

DATA is as for tasks.py, of whose labels the pool is made. For each template the pool is curated under it. Then every
pool, as it came, as curated under each template, and with its wrong rows left out, is served under each template. WORK
keeps the answers: the same command asks nothing twice.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from evidence import Workspace, restore, table
from tasks import SHOTS, exported, figure, leave_out, planted

ROWS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--llm", default="offline")
    parser.add_argument("--templates", default="auto,plain,xml")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--queries", type=int, default=100)
    options = parser.parse_args()
    templates, files = options.templates.split(","), options.work / "files"
    wrong = planted("labels", options.data, files, ROWS, options.queries)
    splits = ("--validation", files / "validation.jsonl", "--test", files / "test.jsonl")

    def opened(name: str) -> Workspace:
        workspace = Workspace(options.work, name, options.llm, "auto")
        workspace.run("index", *sorted((files / "pool").glob("*.jsonl")), *splits)
        restore(workspace)
        return workspace

    def served(workspace: Workspace) -> list[str]:
        tables = [
            workspace.ask("evaluate", "-m", "dense", "-k", SHOTS, "--seeds", 1, "--template", template)
            for template in templates
        ]
        return [figure(one["methods"]["dense"]) for one in tables]

    came = opened("came")
    before = exported(came, files / "came.jsonl")
    lines: list[list[object]] = [["as it came", "", *served(came)]]
    changed: dict[str, set[str]] = {}
    for template in templates:
        workspace = opened(f"curated-{template}")
        workspace.ask(
            "curate", "-m", "dense", "-k", SHOTS, "--max-calls", options.calls, "--template", template, "--yes"
        )
        left = exported(workspace, files / f"{template}.jsonl")
        changed[template] = {row for row, output in before.items() if left.get(row) != output}
        ended = f"{len(changed[template] & wrong)} of {len(wrong)} (+{len(changed[template] - wrong)})"
        lines.append([f"curated under {template}", ended, *served(workspace)])
    truth = opened("truth")
    leave_out(truth, wrong)
    lines.append(["wrong rows left out", f"{len(wrong)} of {len(wrong)}", *served(truth)])
    print(table(["pool", "wrong rows ended (+ right ones)", *(f"served under {name}" for name in templates)], lines))
    pairs = [(one, other) for i, one in enumerate(templates) for other in templates[i + 1 :]]
    agreed = [
        [f"{one}, {other}", len(changed[one] & changed[other]), len(changed[one] | changed[other])]
        for one, other in pairs
    ]
    print(table(["templates", "rows ended under both", "under either"], agreed))


if __name__ == "__main__":
    main()
