"""`audit`: source importance from recorded retrievals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..render.terminal import print_json
from .options import JsonOption
from .shared import narrated


def audit(
    log: Annotated[Path, typer.Argument(help="Recorded retrievals to fit on (JSONL or Parquet).")],
    test: Annotated[Path | None, typer.Option(help="Recorded retrievals to test on.")] = None,
    k: Annotated[int, typer.Option("-k", "--voters", help="Number of answers that vote.")] = 10,
    group_by: Annotated[
        Literal["auto", "source", "domain"],
        typer.Option(help="How to group into sources; domain: by the domain of URLs."),
    ] = "auto",
    noise: Annotated[float, typer.Option(help="Minimum gain, in standard errors.")] = 1.645,
    seed: Annotated[int, typer.Option(help="Seed of the cross-validation.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Find sources to drop from recorded retrievals, without an LLM (Lyu et al. 2023)."""
    from ..engine.sources.audit import audit as run_audit

    with narrated() as (report, cancel):
        found = run_audit(log, test, k, group_by=group_by, noise=noise, seed=seed, report=report, cancel=cancel)
    if as_json:
        print_json(found.as_json())
        return
    from ..render.sources import show_audit

    show_audit(found)
