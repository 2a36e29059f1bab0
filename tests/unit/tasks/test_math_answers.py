"""What counts as an answer: extraction, written numbers, and the form of one worked-out answer."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe_tasks.math.boxed import MAX_ANSWER_CHARS, read_boxed, read_printed
from troupe_tasks.math.form import is_one_answer, num_operations, without_assignment
from troupe_tasks.math.literal import is_same_number, read_literal


@pytest.mark.parametrize(
    ("text", "answer", "is_single"),
    [
        (r"so \boxed{42}.", "42", True),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}", True),
        (r"\boxed{\left\{1, 2\right\}}", r"\left\{1, 2\right\}", True),
        (r"\boxed{1} or \boxed{2}", "2", False),
        (r"\boxed{2}, that is \boxed{2}", "2", True),
        (r"\fbox{1} \boxed {3}", "3", True),
        (r"\fboxed{3}", "3", True),
        (r"\boxed{\boxed{7}}", r"\boxed{7}", True),
        (r"\boxed{1} then \boxed{2", "1", True),
        (r"never write \boxed{ alone. \boxed{4}", "4", True),
        (r"\boxed{" * 20 + r"\boxed{4}", None, False),
        (r"\boxed{}", None, False),
        ("42", None, False),
        (r"\boxed{" + "9" * (MAX_ANSWER_CHARS + 1) + "}", None, False),
        ("x" * 200_000 + r"\boxed{5}", "5", True),
        (r"\boxed{5}" + "x" * 200_000, None, False),
    ],
)
def test_read_boxed_on_each_shape_then_reads_the_last_closed_box(
    text: str, answer: str | None, is_single: bool
) -> None:
    boxed = read_boxed(text)
    assert (boxed.answer, boxed.is_single) == (answer, is_single)


@given(st.text(alphabet="\\boxed{}1 ", max_size=200))
def test_read_boxed_when_the_text_is_anything_then_never_fails(text: str) -> None:
    answer = read_boxed(text).answer
    assert answer is None or answer in text


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ("42\n", "42"),
        ("trying...\n3/4\n\n", "3/4"),
        ("1\n2\n3\n", "3"),
        (r"\boxed{17}" + "\n", "17"),
        ("the answer is 12", "the answer is 12"),
        ("", None),
        ("\n \n", None),
        ("9" * 500, None),
    ],
)
def test_read_printed_on_each_shape_then_reads_the_last_line(
    output: str, answer: str | None
) -> None:
    assert read_printed(output) == answer


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", Fraction(42)),
        ("-3", Fraction(-3)),
        ("1,234", Fraction(1234)),
        ("1{,}234.50", Fraction(2469, 2)),
        (r"\$18.90", Fraction(189, 10)),
        ("0.75", Fraction(3, 4)),
        (".5", Fraction(1, 2)),
        ("3/4", Fraction(3, 4)),
        (r"-\frac{3}{4}", Fraction(-3, 4)),
        (r"\dfrac{3}{4}", Fraction(3, 4)),
        (r"\frac12", Fraction(1, 2)),
        (r"90^\circ", Fraction(90)),
        (r"5\text{ cm}", Fraction(5)),
        ("5 apples", Fraction(5)),
        (r"9 \text{ m}^2", Fraction(9)),
        ("1e3", Fraction(1000)),
        (r"50\%", Fraction(50)),
        (r"3\frac{1}{2}", Fraction(7, 2)),
        (r"-3\dfrac12", Fraction(-7, 2)),
        (r"3\,\frac{1}{2}\text{ cups}", Fraction(7, 2)),
        (r"1{,}234 \tfrac{1}{2}", Fraction(2469, 2)),
        ("3 1/2", Fraction(7, 2)),
        (r"3\ 1/2", Fraction(7, 2)),
        (r"3\frac{1}{2}\%", Fraction(7, 2)),
        ("31/2", Fraction(31, 2)),
        (r"3\cdot\frac{1}{2}", None),
        (r"3(\frac{1}{2})", None),
        (r"3\left(\frac{1}{2}\right)", None),
        (r"3\frac{5}{2}", None),
        (r"3\frac{2}{2}", None),
        (r"3\frac{0}{2}", None),
        (r"0\frac{1}{2}", None),
        (r"3.5\frac{1}{2}", None),
        (r"3\frac{-1}{2}", None),
        (r"3\frac{1}{2}\frac{1}{3}", None),
        ("3 5/2", None),
        ("3 1/0", None),
        ("7 million", None),
        (r"7\text{ million}", None),
        ("7million", None),
        (r"7\text{or eight}", None),
        ("7 to 9", None),
        ("7 tons", Fraction(7)),
        ("7 oranges", Fraction(7)),
        ("12,34", None),
        ("1, 234", Fraction(1234)),
        ("17*23", None),
        (r"17 \cdot 23", None),
        ("(5)", None),
        ("5 or 6", None),
        (r"\sqrt{4}", None),
        ("2^3", None),
        ("1/0", None),
        ("x", None),
        ("", None),
        ("9" * 200, None),
    ],
)
def test_read_literal_on_each_shape_then_reads_written_numbers_only(
    text: str, value: Fraction | None
) -> None:
    literal = read_literal(text)
    assert (literal.value if literal else None) == value


@pytest.mark.parametrize(
    ("gold", "candidate", "is_same"),
    [
        ("42", "42.0", True),
        ("42", "41.9999999999", True),
        ("42", "41.999", False),
        ("1234567", "1234568", False),
        ("1/3", "0.333333", True),
        ("1/3", "0.33", False),
        ("3/4", "6/8", False),
        ("6/8", "6/8", True),
        ("6/8", "3/4", True),
        ("5", "10/2", False),
        ("7/2", r"3\frac{1}{2}", True),
        (r"3\frac{1}{2}", "7/2", True),
        (r"3\frac{1}{2}", "3.5", True),
        ("3/2", r"3\frac{1}{2}", False),
        (r"3\frac{1}{2}", "3/2", False),
        ("31/2", "3 1/2", False),
        ("7/2", r"3\frac{2}{4}", False),
        ("1/2", "50%", True),
        ("50%", "0.5", True),
        ("50", "50%", True),
        ("0.0000001", "0.0000002", False),
    ],
)
def test_is_same_number_on_each_pair_then_is_exact_up_to_rounded_decimals(
    gold: str, candidate: str, is_same: bool
) -> None:
    one, other = read_literal(gold), read_literal(candidate)
    assert one is not None
    assert other is not None
    assert is_same_number(one, other) is is_same


@given(st.fractions(), st.fractions())
def test_is_same_number_when_fractions_are_written_out_then_equals_equality(
    one: Fraction, other: Fraction
) -> None:
    gold, candidate = (read_literal(f"{f.numerator}/{f.denominator}") for f in (one, other))
    assert gold is not None
    assert candidate is not None
    assert is_same_number(gold, candidate) is (one == other)


@pytest.mark.parametrize(
    ("text", "operations"),
    [
        ("391", 0),
        (r"17 \cdot 23", 1),
        ("17*23", 1),
        ("(17)(23)", 1),
        ("17(23)", 1),
        ("17 23", 1),
        (r"2\sqrt{3}", 1),
        (r"\frac{\sqrt{3}}{2}", 2),
        (r"90^\circ", 0),
        ("-5", 0),
        ("x^2+1", 2),
        ("7!", 1),
        (r"\text{Evelyn}", 0),
        (r"16\pi", 0),
    ],
)
def test_num_operations_on_each_shape_then_counts_what_is_left_to_do(
    text: str, operations: int
) -> None:
    assert num_operations(text) == operations


@pytest.mark.parametrize(
    ("gold", "candidate", "is_one"),
    [
        (r"2\sqrt{3}", r"\sqrt{12}", True),
        (r"2\sqrt{3}", r"\sqrt{4 \cdot 3}", False),
        (r"2\sqrt{3}", r"2\sqrt{3}, 5", False),
        (r"2\sqrt{3}", r"2\sqrt{3} \text{ or } 5", False),
        (r"2\sqrt{3}", r"\{2\sqrt{3}\}", True),
        (r"2\sqrt{3}", r"\pm 2\sqrt{3}", False),
        ("1, 2", r"\{2, 1\}", True),
        ("1, 2", "1, 2, 3", False),
        ("(1, 2)", r"\{1, 2\}", False),
        ("(1, 2)", r"\left(1, 2\right)", True),
        ("(1, 2)", "[1, 2]", False),
        (r"(-\infty,-2]\cup[3,\infty)", r"[3,\infty)\cup(-\infty,-2]", True),
        (r"(-\infty,-2]\cup[3,\infty)", r"[-2,\infty]\cup[3,\infty]", False),
        (r"(-2,3)", r"(-2,1]\cup[1,3)", False),
        ("(1,2),(3,4)", r"\{1,2\},\{3,4\}", False),
        ("(1,2),(3,4)", "(3,4),(1,2)", True),
        (r"(1,2),\frac{1}{2},(3,4)", "(1,2),0.5,(3,4)", True),
        (r"3\pm\sqrt2", r"3+\sqrt2, 3-\sqrt2", True),
        (r"3\pm\sqrt2", r"1+2+\sqrt2, 3-\sqrt2", False),
        (r"3\pm\sqrt2", r"1+2\pm\sqrt2", False),
        (r"-2, 2", r"\pm 2", True),
        (r"\pi", r"9^{9^{9}}", False),
        (r"x^2", r"x^{9999}", False),
        (r"\pi", "(" * 20 + r"\pi" + ")" * 20, False),
        ("y = 2x", "y = 2x = 3x", False),
    ],
)
def test_is_one_answer_on_each_pair_then_wants_the_shape_of_the_reference(
    gold: str, candidate: str, is_one: bool
) -> None:
    assert is_one_answer(gold, candidate) is is_one


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("x = 5", "5"),
        (r"f(x) = x^2", "x^2"),
        ("x_1 = 5", "5"),
        (r"x \in [1, 2]", "[1, 2]"),
        ("3 = 5", "3 = 5"),
        ("x = y = 5", "x = y = 5"),
        ("5", "5"),
    ],
)
def test_without_assignment_on_each_shape_then_drops_a_name_only(text: str, rest: str) -> None:
    assert without_assignment(text) == rest
