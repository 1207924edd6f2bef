"""Final answers: which expressions are the same, and that none of a stranger's runs, hangs or grows."""

from __future__ import annotations

import json
import operator
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.grading.expressions import final_key
from icl_curate.engine.grading.metrics import metric_for
from icl_curate.engine.pool.records import Task


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1/2", "0.5"),
        (r"\frac{1}{2}", "0.5"),
        (r"\dfrac12", ".50"),
        (r"3\frac{1}{2}", "3.5"),
        ("-1 1/2", "-1.5"),
        ("x+1", "1 + x"),
        (r"\sqrt{4}", "2"),
        (r"\sqrt[3]{8}", "2"),
        (r"\sqrt[3]{-8}", "-2"),
        ("(-8)^{2/3}", "4"),
        ("B", "b"),
        ("Thus the answer is A.", "(a)"),
        ("The answer is 42.", "42"),
        ("the answer is B", "(b)"),
        (r"\sqrt2 \cdot \sqrt2", "2"),
        (r"\frac{\sqrt{3}}{2}", r"\sqrt{3}/2"),
        ("(x^2 - 1)/(x - 1)", "x + 1"),
        ("2x(x + 1)", "2*x**2 + 2*x"),
        (r"\left(x-y\right)(x+y)", "x^2-y^2"),
        (r"2\pi", "pi*2"),
        ("e^{x+y}", "e^x*e^y"),
        ("-2^2", "-4"),
        ("−5", "-5"),
        ("1,000", "1000"),
        ("42!", "42"),
        ("1e3", "1000"),
        (r"\$5", "5"),
        (r"90^\circ", "90"),
        (r"50\%", "50%"),
        ("x = 7", "7"),
        (r"\text{Monday}", "Monday."),
        (r"so it is \boxed{\frac{3}{4}}", "#### 0.75"),
        ("The work.\nThus the answer is 3/4.", "0.75"),
        ("(1,2)", "(1, 2)"),
        (r"\left(3,\frac{\pi}{2}\right)", "(3, π/2)"),
        (r"\boxed{(-\infty,3]}", "(-∞, 3]"),
        (r"\{1,0.5\}", r"\left\{ 1, \frac{1}{2} \right\}"),
        ("= 5", "5"),
        (r"[0,1) \cup (2, 3]", r"[0, 1)\cup(2,3]"),
        (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        (r"x \le 3", r"x\leq 3"),
        ("1 < x <= 3", r"1<x \leq 3"),
        ("|x - 1|", "|x-1|"),
        ("Paris, France", "paris france"),
    ],
)
def test_the_same_final_answer_is_the_same_however_it_is_written(one: str, other: str) -> None:
    assert final_key(one) == final_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("5", "-5"),
        ("x + 1", "x - 1"),
        (r"\sqrt{x^2}", "x"),
        ("9007199254740993", "9007199254740992"),
        ("x/2y", "x/(2y)"),
        ("1.41421356", r"\sqrt{2}"),
        ("50%", "50"),
        ("cat", "act"),
        (r"3\frac{1}{2}", "3/2"),
        ("b c", "c b"),
        ("(1, 2)", "(2, 1)"),
        (r"\boxed{\frac{1}{2}}", r"\boxed{\frac{3}{2}}"),
        ("9^(-9^9)", "0"),
        ("A", "b"),
        (r"\sqrt{-4}", "-2"),
        ("[0, 1)", "(0, 1]"),
        (r"\boxed{[0,1)}", r"\boxed{(0,1]}"),
        (r"(-\infty, 3]", r"(-\infty, 3)"),
        ("(1, 2)", "(1, 3)"),
        ("(12, 3)", "(1, 23)"),
        ("((1, 2), 3)", "(1, (2, 3))"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 1 & 2 \end{pmatrix}"),
        (r"x \le 3", r"x \ge 3"),
        ("|x|", "x"),
        ("1 2, 3", "12, 3"),
    ],
)
def test_another_final_answer_is_another(one: str, other: str) -> None:
    assert final_key(one) != final_key(other)


HOSTILE = [
    "9**9**9",
    "9^" * 99 + "9",
    "(9^999)^999",
    "(9^3000)*" * 20 + "1",
    "10^10000 - 10^10000 + 1",
    "(x^999)^9",
    "x^(10^9)",
    "exp(exp(exp(9)))",
    "1/0",
    "0^-1",
    "1/(x - x)",
    "(" * 100_000,
    "(" * 99 + "1" + ")" * 99,
    "-" * 199 + "1",
    "\\frac" * 40,
    "\\sqrt[0]{2}",
    "{" * 100_000,
    "1" * 100_000,
    "\\text{" * 50_000,
    "+".join(f"1/{n}" for n in range(1001, 1040)),
    "__import__('os').system('true')",
    "x.__class__",
    "lambda: 0",
]


def test_what_is_hostile_is_a_text_like_any_other() -> None:
    """In a process of its own, which is killed if it computes: 9**9**9 has 369 million digits."""
    code = (
        "import json, sys; from icl_curate.engine.grading.expressions import final_key\n"
        "print(json.dumps([final_key(text)[:3] for text in json.load(sys.stdin)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], input=json.dumps(HOSTILE), text=True, capture_output=True,
                          timeout=100, check=True)  # fmt: skip
    read = json.loads(done.stdout)
    assert [text[:9] for text, key in zip(HOSTILE, read, strict=True) if key[:2] == "= "] == ["(" * 9, "-" * 9]


@settings(deadline=None, max_examples=300)
@given(st.text("0123456789xy+-*/^(){}[]\\fracsqt.,= \n$%", max_size=40) | st.text(max_size=20))
def test_any_text_has_a_key_and_only_one(text: str) -> None:
    assert final_key(text) == final_key(text)


Term = tuple[str, Fraction | None]
"""An expression and its value; None if it divides by 0."""


def combined(parts: tuple[Term, str, Term]) -> Term:
    (one, x), sign, (other, y) = parts
    ways = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
    value = None if x is None or y is None or (sign == "/" and not y) else ways[sign](x, y)
    return f"({one}{sign}{other})", value


terms: st.SearchStrategy[Term] = st.recursive(
    st.integers(-9, 9).map(lambda n: (str(n), Fraction(n))) | st.just(("0.25", Fraction(1, 4))),
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(combined),
    max_leaves=6,
)


@settings(deadline=None, max_examples=300)
@given(terms)
def test_the_value_is_that_of_fractions(term: Term) -> None:
    text, value = term
    assert final_key(text) == f"= {value}" if value is not None else final_key(text)[:2] != "= "


def test_a_pool_of_expressions_is_told_from_one_of_numbers() -> None:
    def chosen(output: str) -> str:
        return metric_for(Task("open", one_line=False), [output] * 20)[0]

    assert chosen(r"So \boxed{\frac{1}{2}}.") == "final" == chosen("Thus\n#### x + 1")
    assert chosen(r"So \boxed{12}.") == "number" == chosen("12 apples - 3.\n#### 9 apples")
    assert chosen("Words.\n#### Monday") == "final"
