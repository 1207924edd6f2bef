"""How often the vote of single answers finds a gain where there is none: the rule of ``tune vote``.

    python benchmarks/null_votes.py [--draws 1000]

All answers to a question are right with the same probability, drawn for the question, whatever their source: no pruning
can help but by chance. At the default of 1.645 standard errors, one draw in twenty may pass.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from icl_curate.engine.trials.lists import RankedLists, ranked_lists
from icl_curate.engine.trials.uses import choose
from null_pools import interval

CASES = ((60, 40, 5), (60, 40, 10), (60, 6, 5), (200, 8, 5), (200, 40, 5))
"""Questions, sources and voters."""

DEPTH, ANSWERS = 30, 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000)
    draws = parser.parse_args().draws
    print("| questions | sources | voters | passed | 95 % | mean gain in standard errors |\n|---|---|---|---|---|---|")
    passed_in_all = 0
    begun = time.monotonic()
    for questions, sources, voters in CASES:
        found = [
            choose(drawn(seed, questions, sources), voters, uses=("prune",), voters=(voters,), decays=(1.0,))
            for seed in range(draws)
        ]
        passed = sum(choice.passed for choice in found)
        low, high = interval(passed, draws)
        shift = np.mean([choice.gain / max(choice.gain_error, 1e-9) for choice in found])
        print(
            f"| {questions} | {sources} | {voters} | {passed} of {draws} | {low:.1%}–{high:.1%} | {shift:+.2f} |",
            flush=True,
        )
        passed_in_all += passed
    low, high = interval(passed_in_all, draws * len(CASES))
    print(f"all: {passed_in_all / draws / len(CASES):.1%} ({low:.1%}–{high:.1%}); {time.monotonic() - begun:.0f} s")


def drawn(seed: int, questions: int, sources: int) -> RankedLists:
    """Lists of `DEPTH` answers by sources drawn at random; a wrong answer is one of several."""
    draw = np.random.default_rng(seed)
    right = draw.random((questions, DEPTH)) < draw.beta(2, 2, (questions, 1))
    answers = np.where(right, 0, draw.integers(1, ANSWERS, right.shape))
    names = [[f"s{i:02}" for i in row] for row in draw.integers(0, sources, right.shape)]
    documents = [[f"{n}-{i}" for i in range(DEPTH)] for n in range(questions)]
    return ranked_lists(names, answers.tolist(), right.astype(float).tolist(), documents=documents)


if __name__ == "__main__":
    main()
