"""Words in any script."""

from __future__ import annotations

import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from icl_curate.engine.pool.answers import rouge_l
from icl_curate.engine.pool.words import runs_of, words_in
from icl_curate.engine.retrieval.bm25 import tokenise

HINDI, HEBREW, NEPALI = "की का हिन्दी", "שָׁלוֹם עוֹלָם", "नेपाली"


def test_marks_belong_to_their_words() -> None:
    assert tokenise(HINDI) == ["की", "का", "हिन्दी"]
    assert tokenise(f"{HEBREW}, {NEPALI}!") == [*HEBREW.split(), NEPALI]
    assert tokenise(unicodedata.normalize("NFD", "Café")) == [unicodedata.normalize("NFD", "café")]
    assert rouge_l("की", ["का"]) == 0.0 < rouge_l("हिन्दी की", ["हिन्दी का"]) < 1.0
    assert [*runs_of("की, का")] == [["की"], ["का"]]
    assert words_in("❤️ love") == ["love"]  # a mark without a letter is none


@given(st.text())
def test_words_without_marks_are_those_of_the_usual_pattern(text: str) -> None:
    plain = "".join(c for c in text if not unicodedata.category(c).startswith("M"))
    assert words_in(plain) == re.findall(r"\w+", plain)
    assert words_in(plain + "ı") == re.findall(r"\w+", plain + "ı")  # not ASCII
