"""Which option a text names: exact first, then folded as far as the options stay apart."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from icl_curate.engine.pool import choices
from icl_curate.engine.pool.answers import is_correct, meaning
from icl_curate.engine.pool.choices import choice_at, choice_of
from icl_curate.engine.pool.records import Options, Query, Task

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXTS = st.text(min_size=1, max_size=12) | st.text("aAbcé C+#-_/.,:5 '\"\n", min_size=1, max_size=6)
SETS = st.lists(TEXTS, min_size=1, max_size=8, unique=True)


@UNHURRIED
@given(SETS)
@example(["C", "C++", "C#"])
@example(["-5", "5", "−5", "5."])
@example(["a", "the", "A", ""])
@example(['{"a": 1}', '{"a":1}', '{"a": true}'])
@example(["Answer: x", "x", "the answer is x", "**x**"])
@example(["card_arrival", "card arrival", "card-arrival"])
@example(["not spam", "spam"])
def test_two_texts_of_one_set_are_two_answers(options: list[str]) -> None:
    for i, one in enumerate(options):
        assert choice_of(one, options) == i
        assert [is_correct(one, [other], options) for other in options] == [other == one for other in options]
        assert meaning(one, options) == one


@UNHURRIED
@given(
    st.text(max_size=40), SETS.filter(lambda options: all(one and one == one.strip() for one in options)), st.booleans()
)
@example("It's billing.\nNot order", ["billing", "order"], False)
@example("Not billing, I thought.\nSo billing it is", ["billing", "order"], False)
@example("Answer: (B)\nthat is all", ["billing", "order"], True)
@example("0", ["\n1", "1"], False)
@example("0", [":1", "1"], False)
@example("00", ["A:0", "0"], False)
def test_what_was_read_reads_the_same(reply: str, options: list[str], letters: bool) -> None:
    options = Options(options) if letters else options  # type: ignore[assignment]
    for text in (reply, f"I say {options[0]}\n{reply}", f"{reply}\nAnswer: {options[-1]}"):
        found = choice_at(text, options)
        if found is not None:
            assert choice_of(text[found[1] : found[2]], options) == found[0]


WAYS = (
    "{}",
    " {}\n",
    "{}.",
    "**{}**",
    "`{}`",
    "({})",
    '"{}"',
    "Answer: {}",
    "The answer is {}",
    "The correct label is: {}.",
    "**Answer:** {}",
    "**Final answer: {}**",
    "Final answer:\n\n{}\n\nI hope this helps!",
    "Let me think.\nAnswer: {}",
    "Sure! Here is the label:\n{}",
    "Sure! Here is the label:\n**{}**\nI hope this helps!",
    "{}\nbecause it is",
    "First I took it for something else.\n{}",
    "This is **{}**, I think",
    "I think {} fits",
    "I think it is {}.",
    "\\boxed{{{}}}",
    "{}: it does not fit anything else",
    "{}, it isn't anything else",
)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("labels", [("C", "C++", "C#"), ("-5", "5"), ("billing", "order_status"), ("v1.2", "v12")])
def test_a_label_is_read_from_what_is_said_around_it(way: str, labels: tuple[str, ...]) -> None:
    assert [choice_of(way.format(label), labels) for label in labels] == list(range(len(labels)))


@pytest.mark.parametrize(
    "reply",
    [
        "not billing",
        "It isn't billing.",
        "It isn’t billing.",
        "anything except billing",
        "something else instead of billing",
        "No, this is not about billing",
        "billing or order_status",
        "order_status\nor rather billing, who knows",
        "B",
        "2",
        "",
        "\n",
    ],
)
def test_a_reply_that_negates_or_names_several_labels_names_none(reply: str) -> None:
    labels = ("billing", "order_status", "refund")
    assert choice_of(reply.replace("order_status\n", "I say order_status\n"), labels) is None


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (
            ("投诉", "咨询", "不满意", "满意"),
            {
                "咨询。": "咨询",
                "「投诉」": "投诉",
                "答案：投诉": "投诉",
                "正确答案是咨询。": "咨询",
                "标签：\n咨询": "咨询",
                "客户很不满意。": "不满意",
                "客户满意": "满意",
                "不是投诉。": None,
                "我不认为是投诉": None,
                "他不高兴，所以是投诉": "投诉",
                "可能是投诉，也可能是咨询": None,
                "咨询，不是别的": "咨询",
            },
        ),
        (
            ("苦情", "インド", "質問"),
            {
                "苦情です。": "苦情",
                "苦情ではありません。": None,
                "ラベル：質問": "質問",
                "インドネシアです": None,
                "インドです": "インド",
            },
        ),
        (
            ("불만", "환불 요청", "인도"),
            {
                "불만입니다.": "불만",
                "정답은 환불 요청입니다.": "환불 요청",
                "인도네시아": None,
                "불만이 아닙니다.": None,
            },
        ),
        (("queja", "pregunta"), {"¿Queja?": "queja", "La respuesta es queja.": "queja", "„pregunta“": "pregunta"}),
        (("शिकायत", "سؤال"), {"शिकायत।": "शिकायत", "سؤال؟": "سؤال"}),
    ],
)
def test_labels_of_other_languages_are_read(labels: tuple[str, ...], said: dict[str, str | None]) -> None:
    read = {reply: choice_of(reply, labels) for reply in said}
    assert {reply: None if i is None else labels[i] for reply, i in read.items()} == said


SHORT = [
    (("是", "否"), {"是的": "是", "是的。": "是", "答案是否。": "否", "不是": None, "我认为是否": None, "是否": None}),
    (("正", "负"), {"情感：正": "正", "情感:负。": "负", "正面": None, "正：负都可能": None}),
    (("良", "悪"), {"答えは良です。": "良", "悪です": "悪", "悪い": None, "感情：良": "良"}),
    (("예", "아니오"), {"정답은 예입니다.": "예", "예입니다": "예", "예약": None}),
    (("ใช่", "ไม่"), {"คำตอบคือไม่": "ไม่", "ใช่ครับ": "ใช่", "ไม่ค่ะ": "ไม่", "ไม่ใช่": None, "คำตอบ: ใช่": "ใช่"}),
    (("ល្អ", "អាក្រក់"), {"ល្អ។": "ល្អ", "ចម្លើយគឺអាក្រក់": "អាក្រក់", "ចម្លើយ៖ល្អ។": "ល្អ", "មិនល្អ": None}),
]


@pytest.mark.parametrize(("options", "replies"), SHORT)
def test_labels_of_one_character_or_without_blanks_are_read_where_they_stand_alone(
    options: tuple[str, ...], replies: dict[str, str | None]
) -> None:
    for reply, meant in replies.items():
        found = choice_of(reply, options)
        assert (None if found is None else options[found]) == meant, reply


LETTERED = ("B。", "（B）", "答案：B", "答案是B。", "选B", "选项B", "Antwort: B", "Die Antwort ist B.",
            "Réponse\xa0: B", "La respuesta es (B)", "정답: B", "정답은 B입니다.", "Ответ: B")  # fmt: skip


@pytest.mark.parametrize("reply", LETTERED)
def test_letters_are_read_in_other_languages(reply: str) -> None:
    assert choice_of(reply, Options(("甲", "乙", "丙"))) == 1


def test_what_is_emphasised_to_deny_it_is_no_answer() -> None:
    labels = ("billing", "shipping", "refund")
    said = {
        "The label is **billing**, not **shipping**.": "billing",
        "It isn't a **refund** but **billing**.": "billing",
        "It is **billing** instead of **shipping**": "billing",
        "It is not **billing**.": None,
        "not **billing**, nor **shipping**: **refund**": "refund",
        "All are wrong except **billing**.": "billing",
        "Is it shipping? No\n\n**refund** fits better than shipping.": "refund",
    }
    read = {reply: choice_of(reply, labels) for reply in said}
    assert {reply: None if i is None else labels[i] for reply, i in read.items()} == said


def test_yes_and_no_are_read_although_they_explain() -> None:
    said = {"No, the answer is not right.": "no", "Yes, it isn't the same word, but right.": "yes", "not yes": None}
    said |= {"No. They do not agree.": "no", "I would say yes.": "yes", "Yes and no": None}
    read = {reply: choice_of(reply, ("yes", "no")) for reply in said}
    assert {reply: None if i is None else ("yes", "no")[i] for reply, i in read.items()} == said


def test_signs_and_decimals_are_no_punctuation() -> None:
    assert choice_of("-5", ["1", "5"]) is None
    assert choice_of("It is 3.5", ["3", "5", "35"]) is None
    assert choice_of("C#", ["C", "Java"]) is None
    assert choice_of("3,5", ["35", "40"]) is None


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (
            ("A", "B"),
            {
                "This is a difficult question.": None,
                "I need a bit more context to answer.": None,
                "A customer asks for more time.": None,
                "I think A describes it best": "A",
                "I would choose a.": "A",
                "It's A because it fits": "A",
                "Well, option a describes it": "A",
                "A is right, I think": "A",
                "A would be my choice": "A",
                "A makes sense to me": "A",
                "A serious mistake, a business like any other": None,
            },
        ),
        (("I", "II"), {"As an AI model, I would need a picture.": None, "I think it is I.": "I", "I say II": "II"}),
        (
            ("yes", "no"),
            {
                "I have no idea.": None,
                "There is no way to tell from the text.": None,
                "I'd say no because they differ": "no",
                "I would say no.": "no",
                "Yes, there is no doubt": "yes",
            },
        ),
        (("-1", "0", "1"), {"minus 1": "-1", "- 1": "-1", "I'd say – 1": "-1", "It is 1": "1", "2 - 1": "1"}),
        (("1", "2"), {"- 1": "1"}),
    ],
)
def test_words_and_signs_of_a_sentence_are_no_labels(labels: tuple[str, ...], said: dict[str, str | None]) -> None:
    read = {reply: choice_of(reply, labels) for reply in said}
    assert {reply: None if i is None else labels[i] for reply, i in read.items()} == said


def test_only_options_have_letters() -> None:
    query = Query("which", options=("bank", "mall"))
    assert choice_of("(B)", Task("options").choices(query)) == 1
    assert choice_of("Let me see.\nB", Task("options").choices(query)) == 1
    assert choice_of("(B)", Task("labels", ("bank", "mall")).choices(Query("which"))) is None


def test_labels_in_json_are_read_as_json() -> None:
    teams = [{"team": name, "urgent": False} for name in ("billing", "order")]
    labels = tuple(json.dumps(team, indent=2) for team in teams)
    for i, team in enumerate(teams):
        for reply in (labels[i], json.dumps(team, sort_keys=True, separators=(",", ":")), f"Here it is:\n{labels[i]}"):
            assert choice_of(reply, labels) == i
    assert choice_of('{"team": "billing", "urgent": 0}', labels) is None


def test_a_row_whose_label_is_no_option_any_more_is_never_right() -> None:
    assert not is_correct("refund", ["refund status"], ("refund", "billing"))
    assert is_correct("refund", ["Refund."], ("refund", "billing"))


def test_each_word_of_a_long_reply_is_looked_at_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may answer with a megabyte of one label: the work must grow with the text, not with its square."""
    looked = 0

    def counted(pair: tuple[str, str], word: str) -> bool:
        nonlocal looked
        looked += 1
        return word in pair

    class Words(list[tuple[str, str]]):
        def __getitem__(self, which: Any) -> Any:
            nonlocal looked
            found = super().__getitem__(which)
            looked += len(found) if isinstance(which, slice) else 1
            return found

    monkeypatch.setattr(choices, "contains", counted)
    forms, words = choices._known(("refund", "refund now", "order")), Words([("refund", "refund")] * 2_000)
    assert {forms._at(words, place) for place in range(len(words))} == {0}
    assert looked < 20 * len(words)
