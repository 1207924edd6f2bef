"""What the call cache of a workspace holds, counted by SQL of the tests' own."""

from __future__ import annotations

from dataclasses import dataclass

from icl_curate.engine.store.workspace import Workspace


@dataclass(frozen=True, slots=True)
class LLMUsage:
    """Totals of one LLM. ``uncertain`` counts its answers without log-probabilities."""

    llm: str
    calls: int
    tokens_in: int
    tokens_out: int
    uncertain: int
    failures: int


def usage_in(workspace: Workspace) -> list[LLMUsage]:
    """Totals for each LLM, by name."""
    with workspace.read() as con:
        rows = con.execute(
            """
            SELECT coalesce(c.llm, f.llm) AS llm, coalesce(calls, 0), coalesce(tokens_in, 0), coalesce(tokens_out, 0),
                   coalesce(uncertain, 0), coalesce(failures, 0)
              FROM (SELECT llm, count(*) AS calls, sum(tokens_in) AS tokens_in, sum(tokens_out) AS tokens_out,
                           count(*) FILTER (len(logprobs) = 0 AND len(option_logprobs) = 0) AS uncertain
                      FROM llm_calls GROUP BY llm) c
              FULL JOIN (SELECT llm, count(*) AS failures FROM llm_failures GROUP BY llm) f ON c.llm = f.llm
             ORDER BY 1
            """
        ).fetchall()
    return [LLMUsage(row[0], *(int(value) for value in row[1:])) for row in rows]


def calls_in(workspace: Workspace) -> int:
    """How many answers are stored, of all LLMs."""
    return sum(usage.calls for usage in usage_in(workspace))
