"""The terms of the field, one or two sentences each: for the help of ``review`` and for ``docs/glossary.md``."""

from __future__ import annotations

TERMS = {
    "active pool": "The demonstrations that selection and export use: the pool without pruned and retired rows.",
    "arm": "A variant of calibration, compared with others on the same queries: `full`, `plain`, `oracle`, …",
    "AUROC": (
        "The probability that a wrong answer has a higher uncertainty than a right one. 0.5: uncertainty does not "
        "separate them; 1: it separates them perfectly."
    ),
    "BM25": "A score of word overlap between two texts that gives rare words more weight.",
    "calibration": (
        "Answering in rounds. In each round the LLM sees uncertainty scores of the documents and of its earlier "
        "answers."
    ),
    "call cache": (
        "All answers of LLMs, stored in the workspace by everything that can change an answer. No prompt is paid "
        "for twice."
    ),
    "candidates": "The demonstrations a method selects from; `ranker` uses the 30 nearest by embedding.",
    "confidence interval": (
        "The range that has the true value in 95 % of such measurements. Intervals far apart: a real difference."
    ),
    "core topics": "The main topics of a demonstration, picked by the LLM from candidates (or by word overlap).",
    "coverage": "How many of a query's required topics its demonstrations cover together.",
    "cross-fitting": (
        "Evaluating a choice, fold by fold, on queries that were not used to make it. This avoids the optimistic "
        "bias of picking the best of many."
    ),
    "decision": (
        "Prune, restore or keep, for a source or a demonstration: a row in an append-only table. An undo is a row too."
    ),
    "demonstration": "An input with its output, shown to an LLM in the prompt. Also: shot, example.",
    "distinctiveness": (
        "How much better a topic matches a text than it matches the nearest other texts (TopicK, equation 2)."
    ),
    "duplicate": "A row with the same input as an earlier one (exact), or nearly the same (near).",
    "easy, hard queries": "Queries answered right (easy) or wrong (hard) zero-shot.",
    "encoder": "The model that computes the embedding of a text: by sentence-transformers, or behind an API.",
    "entropy (of the policy)": (
        "How evenly a ranker spreads probability over candidates. An entropy near 0 means it has collapsed onto one."
    ),
    "estimator": (
        "A way to score sources (multilinear, leave-one-out, reliability, …) or uncertainty (product, geometric, …)."
    ),
    "flip": "A change of an answer between right and wrong when one demonstration is added to the prompt.",
    "gap": "A topic that validation queries need, the LLM does not know and the active pool does not cover.",
    "in-context learning (ICL)": "An LLM learns a task from examples in its prompt; its parameters do not change.",
    "job": "A command that runs in a background process (`--background`).",
    "k": "The number of demonstrations in a prompt; in `audit`, the number of voters.",
    "leak": "A validation or test query that is also in the pool.",
    "leave-one-out": "The change of the vote's accuracy when one source is left out. Positive: the source helps.",
    "ledger": "For each demonstration: how often it was added to a prompt, and how often that helped or hurt.",
    "lock": (
        "A file that names the active pool, the trained models and the settings that were judged, so that a service "
        "loads exactly these: `serve --locked`."
    ),
    "log-probabilities": (
        "The logarithm of the probability of each token. Option scoring and product uncertainty need them."
    ),
    "multilinear extension": "The expected utility when each source is present with probability equal to its weight.",
    "offline": "The built-in reader that stands in for an LLM. Its figures say nothing about an LLM.",
    "option": (
        "One of the possible answers to a question. If the outputs of the pool form a small closed set, they are "
        "*labels*."
    ),
    "policy": "The trained ranker: one linear layer over frozen embeddings.",
    "pool": "All indexed demonstrations.",
    "posterior": (
        "The probability that a row hurts, given all evidence about it: its label, its neighbours, the LLM's answers."
    ),
    "preselection": (
        "A cheap first stage (nearest by embedding, or BM25). A more expensive method selects from its candidates."
    ),
    "prune, restore": "Remove from the active pool; put back.",
    "query": "An input that the LLM answers; in the workspace, a validation or test query.",
    "race": (
        "Several prunings (or methods) compared with the prompts that are served, on the same validation queries; what "
        "falls behind is dropped early."
    ),
    "redundancy": "The share of a demonstration's topics that the demonstrations before it already cover.",
    "reliability": (
        "A source's share of right answers with one of its demonstrations in the prompt, shrunk towards the mean "
        "of all sources if there are few answers."
    ),
    "required topics": "The topics a query needs, according to the topic predictor.",
    "retired": "A row that is no longer in its file. It keeps its number and history.",
    "scored, generated": (
        "Two ways to answer a question with options: compare the options' log-probabilities, or let the LLM "
        "generate text."
    ),
    "served prompt": "The prompt that is really sent: the k demonstrations of the served method with the query.",
    "shots": "Demonstrations in a prompt. Zero-shot: none.",
    "σ (sigma)": (
        "The ranker's threshold: with `--threshold`, training only tries candidates with a higher score. It is set "
        "anew as answers flip."
    ),
    "source": "Where a demonstration came from: a file, a person, a crowd, a system.",
    "split": "`pool` to select from, `validation` to choose on, `test` to evaluate on.",
    "stability": "Whether the answer stays the same when the demonstrations come in another order.",
    "suspect": "A row that `check` names, repeats and leaks too, or that is likely wrong by the evidence of training.",
    "topical knowledge": "The LLM's zero-shot accuracy on questions of a topic.",
    "trial": "A validation query answered with exactly one demonstration in the prompt.",
    "uncertainty": (
        "How unsure the LLM is of an answer, from 0 to 1; as a *score*, from 0 to 100 relative to the mean of a set."
    ),
    "utility": "The value of an answer: 1 right, 0 wrong.",
    "vote": "The most frequent of the first k answers, each given with one demonstration.",
    "weight": "The importance, 0 to 1, that `train sources` learns for a source.",
    "workspace": "The folder `.icl-curate` with the DuckDB file and the trained models.",
}
"""By term, in alphabetical order. Backticks mark names of the command line."""


def plain(term: str) -> str:
    """The explanation of a term, without marks."""
    return TERMS[term].replace("`", "")
