"""`audit`: source importance from recorded retrievals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from ..render.terminal import print_json
from .options import JsonOption
from .shared import narrated

if TYPE_CHECKING:
    from ..engine.trials.results import Use


def audit(
    log: Annotated[Path, typer.Argument(help="Recorded retrievals to fit on (JSONL or Parquet).")],
    test: Annotated[Path | None, typer.Option(help="Recorded retrievals to test on.")] = None,
    k: Annotated[int, typer.Option("-k", "--voters", help="Number of answers that vote.")] = 10,
    task: Annotated[
        Literal["questions", "imputation"],
        typer.Option(help="imputation: missing values of a table, compared without case, articles and punctuation."),
    ] = "questions",
    group_by: Annotated[
        Literal["auto", "source", "domain"],
        typer.Option(help="How to group into sources; domain: by the domain of URLs."),
    ] = "auto",
    uses: Annotated[
        str, typer.Option(help="Comma-separated, to choose from: prune, vote, reweight, reweight-points.")
    ] = "prune,vote,reweight",
    rate: Annotated[float, typer.Option(help="Learning rate of the weights, per retrieved item.")] = 500.0,
    epochs: Annotated[int, typer.Option(help="Number of steps of the weights.", min=1)] = 50,
    noise: Annotated[float, typer.Option(help="Minimum gain, in standard errors.")] = 1.645,
    seed: Annotated[int, typer.Option(help="Seed of the cross-validation.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Find sources to drop from recorded retrievals, without an LLM (Lyu et al. 2023)."""
    from ..engine.papers.sources.audit import audit as run_audit

    chosen = cast("Sequence[Use]", [use.strip() for use in uses.split(",") if use.strip()])
    with narrated() as (report, cancel):
        found = run_audit(
            log, test, k, task=task, group_by=group_by, uses=chosen, rate=rate, epochs=epochs, noise=noise, seed=seed,
            report=report, cancel=cancel,
        )  # fmt: skip
    if as_json:
        print_json(found.as_json())
        return
    from ..render.sources import show_audit

    show_audit(found)
