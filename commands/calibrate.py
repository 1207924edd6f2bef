"""`calibrate`: answer in rounds with uncertainty scores."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..engine.base.errors import UsageError
from . import values
from .options import (
    AS_SET,
    DEFAULT_WORKSPACE,
    NO_LLM_OPTIONS,
    NO_PAID_OPTIONS,
    DocumentTokensOption,
    FieldOption,
    GradingOptions,
    JsonOption,
    LLMOptions,
    MethodOption,
    OrderOption,
    PaidOptions,
    SeedOption,
    ShotsOption,
    WorkspaceOption,
)
from .paid import carry_out
from .shared import fields_of, open_workspace, settings_of, split_of, tell, text_of
from .values import option

if TYPE_CHECKING:
    from ..engine.papers.calibrate.round_runner import CalibrationPlan
    from ..engine.store.settings import Settings

SplitOption = Annotated[str, option(help="Queries of: validation, test or pool.", of=values.SPLITS)]

FirstOption = Annotated[int | None, typer.Option("--limit", help="Use only the first N queries.", min=1)]


@dataclass(frozen=True, kw_only=True)
class RoundOptions:
    """How a query is answered in rounds."""

    rounds: Annotated[int, typer.Option("--rounds", "-r", help="Number of rounds after the first answer.", min=1)] = 5
    stop_early: Annotated[bool, typer.Option("--stop-early", help="Stop when answer and score no longer change.")] = (
        False
    )
    uncertainty: Annotated[
        str,
        option(
            help="Uncertainty: auto (product, or geometric for long answers), product, geometric, entropy, or "
            "self-consistency (needs no log-probabilities).",
            of=values.estimators,
        ),
    ] = "auto"
    method: MethodOption = None
    k: ShotsOption = None
    order: OrderOption = None
    document_tokens: DocumentTokensOption = None
    over: Annotated[
        Literal["auto", "documents", "demonstrations", "steps"],
        typer.Option(
            help="What to score: the query's documents, demonstrations, or steps of the LLM's own reasoning; auto: "
            "documents if there are two or more, else demonstrations."
        ),
    ] = "auto"
    arms: Annotated[
        str,
        option(
            help="Variants to run: full, answers, plain, relevance, oracle, sampling, vote, self-rag; comma-separated, "
            "or all.",
            some_of=values.arms,
        ),
    ] = "full"
    above: Annotated[
        float | None,
        typer.Option("--above", help="Further rounds only for first answers with at least this score.", min=0, max=100),
    ] = None
    until_correct: Annotated[
        bool, typer.Option("--until-correct", help="Stop at the first right answer (for fine-tuning sets).")
    ] = False

    def settings(self, workspace: Path, llm: LLMOptions, grading: GradingOptions) -> Settings:
        """The settings, with those that were given."""
        return settings_of(
            workspace,
            method=self.method,
            k=self.k,
            order=self.order,
            document_tokens=self.document_tokens,
            **asdict(llm),
            **asdict(grading),
        )

    def plan(self, **more: Any) -> CalibrationPlan:
        from ..engine.papers.calibrate.round_runner import SETTLED, CalibrationPlan

        return CalibrationPlan(
            rounds=self.rounds,
            arms=tuple(name.strip() for name in self.arms.split(",") if name.strip()),
            estimator=self.uncertainty,
            over=self.over,
            settle=SETTLED if self.stop_early else None,
            above=self.above,
            until_correct=self.until_correct,
            **more,
        )


USUAL_ROUNDS = RoundOptions()


def calibrate(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    split: SplitOption = "",
    limit: FirstOption = None,
    how: RoundOptions = USUAL_ROUNDS,
    by: Annotated[str, typer.Option("--by", help="Report figures by this field of the queries, too.")] = "",
    attention: Annotated[
        bool, typer.Option("--attention", help="Report how much attention relevant documents get (local models).")
    ] = False,
    llm: LLMOptions = NO_LLM_OPTIONS,
    grading: GradingOptions = AS_SET,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Answer all queries of a split in rounds: the LLM sees its uncertainty about documents and earlier answers (Chen
    et al. 2025)."""
    from ..engine.papers.calibrate.calibration import Calibration
    from ..engine.papers.calibrate.documents import queries_of

    if not split:
        raise UsageError(
            "name the queries to calibrate", 'icl-curate calibrate --split validation or calibrate query "a question"'
        )
    settings = how.settings(workspace, llm, grading)
    plan = how.plan(split=split_of(split), by=by, attention=attention)
    store = open_workspace(workspace)
    asked = queries_of(store, split_of(split), limit)
    carry_out(lambda llm: Calibration.prepare(llm, asked, plan), store, settings, paid)


def calibrate_query(
    query: Annotated[str | None, typer.Argument(help="A question, the id of an indexed query, or - for stdin.")] = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    options: Annotated[list[str] | None, typer.Option("--option", help="An answer option; repeatable.")] = None,
    context: Annotated[str, typer.Option(help="Documents of the query, separated by blank lines.")] = "",
    further: FieldOption = None,
    how: RoundOptions = USUAL_ROUNDS,
    llm: LLMOptions = NO_LLM_OPTIONS,
    grading: GradingOptions = AS_SET,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Answer one query in rounds, and show each of them."""
    from ..engine.papers.calibrate.calibration import Calibration
    from ..engine.papers.calibrate.documents import query_named
    from ..engine.pool.fields import OPTION, require

    if not query:
        raise UsageError("name the query to calibrate", 'icl-curate calibrate query "a question" or --split NAME')
    settings, store = how.settings(workspace, llm, grading), open_workspace(workspace)
    asked, plan = query_named(store, text_of(query), options or (), context, fields_of(further or ())), how.plan()
    if asked.row is None:  # else its fields are those of its row
        require(asked, settings.reads, OPTION)
    carry_out(lambda llm: Calibration.prepare(llm, [asked], plan), store, settings, paid)


def calibrate_keys(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    split: SplitOption = "validation",
    limit: FirstOption = None,
    order: OrderOption = None,
    document_tokens: DocumentTokensOption = None,
    llm: LLMOptions = NO_LLM_OPTIONS,
    grading: GradingOptions = AS_SET,
    paid: PaidOptions = NO_PAID_OPTIONS,
) -> None:
    """Ask without rounds, with relevant documents tagged <KEY> or not, in four places among the others (Chen et al.
    2025)."""
    from ..engine.papers.calibrate.documents import queries_of
    from ..engine.papers.calibrate.keys import KeyAblation

    settings = settings_of(workspace, order=order, document_tokens=document_tokens, **asdict(llm), **asdict(grading))
    store, chosen = open_workspace(workspace), split_of(split)
    asked = queries_of(store, chosen, limit)
    carry_out(lambda llm: KeyAblation.prepare(llm, asked, chosen), store, settings, paid)


def calibrate_runs(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    split: SplitOption = "validation",
    seed: SeedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the LLMs that calibrated a split before. No LLM is asked."""
    from ..engine.papers.calibrate.reports import comparison

    tell(comparison(open_workspace(workspace), split_of(split), settings_of(workspace, seed=seed).seed), as_json)
