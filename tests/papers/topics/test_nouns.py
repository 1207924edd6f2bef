"""Nouns told from verbs and fillers by their neighbours, and topics mined with them alone."""

from __future__ import annotations

import numpy as np
import pytest
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.base.progress import SILENT
from icl_curate.engine.papers.topics import mining
from icl_curate.engine.papers.topics.mining import NounCounts
from icl_curate.engine.pool.words import fold

TEXTS = [
    "I want to cancel my order, please.",
    "Where is the order? I cancel it now.",
    "My pump grinds. The pump is loud.",
    "Honestly the pump grinds, honestly!",
    "Our cat sleeps under the lamp; she can sleep all day.",
    "Mornings suit me best for the delivery.",
    "Mornings suit them, too: a delivery on time.",
    "No refund for the order yet, and a transfer is missing.",
    "To transfer money I need a transfer, in euros.",
    "Paid in euros for my old card, the card is gone.",
]


@pytest.fixture(scope="module")
def counts() -> NounCounts:
    found = NounCounts()
    for text in TEXTS:
        found.add(text)
    return found


@pytest.mark.parametrize("word", ["order", "pump", "refund", "delivery", "euros", "card", "lamp", "transfer"])
def test_what_an_article_or_a_preposition_opens_is_a_noun(counts: NounCounts, word: str) -> None:
    assert counts.is_noun(fold(word))


@pytest.mark.parametrize("word", ["cancel", "grinds", "sleeps", "suit", "honestly", "loud", "missing", "old", "unseen"])
def test_verbs_adverbs_and_adjectives_are_none(counts: NounCounts, word: str) -> None:
    assert not counts.is_noun(fold(word))


def test_a_phrase_that_ends_in_a_verb_names_no_topic(counts: NounCounts) -> None:
    assert not counts.is_topic(fold("mornings suit")) and not counts.is_topic(fold("cat sleeps"))
    assert counts.is_topic(fold("cancel my order")) and counts.is_topic(fold("old card"))
    assert counts.is_topic(fold("delivery delay"))  # never seen as a verb


def test_only_nouns_are_mined_as_single_words_if_wanted() -> None:
    texts = [f"{text} {i}" for i in range(3) for text in TEXTS]
    flat = np.ones((len(texts), 2), np.float32) / np.float32(np.sqrt(2))

    def mined(nouns: bool) -> set[str]:
        def embed(names: object) -> np.ndarray:
            return np.eye(len(names), dtype=np.float32)  # type: ignore[arg-type]  # no two names are synonyms

        names, vectors = mining.mine(texts, flat, embed, 99, nouns=nouns)
        assert len(names) == len(vectors)
        return set(names)

    before, after = mined(False), mined(True)
    assert "cancel" in before and not {"cancel", "honestly", "grinds"} & after
    assert {"euros", "delivery"} <= after and not after - before
    assert {name for name in before - after if " " not in name} and "mornings suit" not in after
    with pytest.raises(UsageError, match="no phrase"):
        mining.mine(["we honestly agree"] * 4, flat[:4], np.ones, 9, nouns=True)


def test_a_full_count_still_takes_phrases_of_later_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mining, "ROOM", 400)
    early = [f"engine{i} boiler{i} cooler{i} dryer{i}" for i in range(60) for _ in range(2)]
    late = [f"solar panel {'bcdfghjklm'[i % 10]}{'npqrstvwxz'[i // 10]}ox" for i in range(90)]
    counts = mining._counted([*early, *late], SILENT)
    assert len(counts) <= 400 and counts["solar panel"] > 60
