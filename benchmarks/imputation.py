"""Imputation by retrieval (paper 003, table 2): a column's missing values, on the answers that the authors published.

    python benchmarks/imputation.py DATA [--seeds 64] [--choose 8]

DATA holds ``data/<table>/{train,valid,test}.csv`` and, with the columns ``sample_index, position, answer, url``,
``answers/<table>_gptjt6b/{train,valid,test}.csv``: the folder ``applications/imputation`` of the repository
schelterlabs/retrieval_importance. Half of the records choose, the other half are reported, as published. The columns
are those of `wikifact`. "normalised": answers are compared as SQuAD does.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
from icl_curate.engine.papers.sources.audit import registered_domain
from icl_curate.engine.pool.answers import normalise
from icl_curate.engine.trials.lists import RankedLists, ranked_lists
from wikifact import COLUMNS, SEEDS, one_seed, show

COLUMN = {"buy": "manufacturer", "restaurant": "city"}
# paper 003, table 2: baseline, leave-one-out, reweight, prune; means over 64 seeds
PUBLISHED = {"buy": (0.789, 0.808, 0.815, 0.813), "restaurant": (0.746, 0.756, 0.760, 0.761)}


def lists_of(folder: Path, table: str, normalised: bool) -> RankedLists:
    """The records in the published order; a source is a registered domain, a document a site."""
    names, answers, sites, right = [], [], [], []
    for split in ("valid", "test", "train"):
        records = rows(folder / "data" / table / f"{split}.csv")
        given: defaultdict[int, list[dict[str, str]]] = defaultdict(list)
        for row in rows(folder / "answers" / f"{table}_gptjt6b" / f"{split}.csv"):
            given[int(row["sample_index"])].append(row)
        for number, record in enumerate(records):
            found = sorted(given[number], key=lambda row: int(row["position"]))
            same = normalise if normalised else str.lower
            truth, said = same(record[COLUMN[table]]), [same(row["answer"]) for row in found]
            sites.append([row["url"] for row in found])
            names.append([registered_domain(site) for site in sites[-1]])
            answers.append(said)
            right.append([float(answer == truth) for answer in said])
    return ranked_lists(names, answers, right, documents=sites)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--choose", type=int, default=len(SEEDS), help="seeds for which a setting is chosen")
    options = parser.parse_args()
    print(f"{'':42s}" + "".join(f"{column:>15s}" for column in COLUMNS))
    for table, published in PUBLISHED.items():
        for normalised in (False, True):
            lists, results = lists_of(options.data, table, normalised), []
            for number, seed in enumerate(SEEDS[: options.seeds]):
                numbers = list(range(len(lists)))
                random.Random(seed).shuffle(numbers)
                half = len(numbers) // 2  # the first half is reported here, not the second
                results.append(one_seed(lists, numbers[half:], numbers[:half], number < options.choose)[0])
            show(table + (", normalised" if normalised else ""), np.nanmean(results, axis=0))
            show(f"  {len(results)} seeds, {len(lists)} records", np.nanstd(results, axis=0), "± ")
        show("  published (64 seeds)", published)


if __name__ == "__main__":
    main()
