r"""Equivalence by math-verify in real processes: right, bounded, and replaced when they die."""

import os
import signal
from pathlib import Path

import pytest

from troupe.errors import DeadlineError, OverloadedError, UnavailableError
from troupe_tasks.math.equivalence import Equivalence
from troupe_tasks.math.worker_process import WorkerPool, WorkerProcess

SLEEPER = "import sys, time; print('{}', flush=True); sys.stdin.readline(); time.sleep(60)"
SPINNER = (
    "import sys; print('{}', flush=True); sys.stdin.readline()\n"
    "while True:\n    pass\n"
)  # fmt: skip
QUITTER = "import sys; print('{}', flush=True); sys.stdin.readline(); sys.exit(7)"
TOO_HARD = r"\sum_{i=1}^{9999999} \sqrt{i}"


@pytest.fixture(scope="module")
def equivalence():
    found = Equivalence()
    yield found
    found.close()


def _worker(tmp_path: Path, source: str) -> WorkerProcess:
    script = tmp_path / "worker.py"
    script.write_text(source)
    return WorkerProcess(script)


@pytest.mark.parametrize(
    ("gold", "candidate"),
    [
        (r"2\sqrt{3}", r"\sqrt{12}"),
        (r"\sqrt{2}", "1.4142135623730951"),
        (r"x^2+1", "1 + x^2"),
        (r"\{1, 2\}", "2, 1"),
        ("(1, 2)", r"\left(1, 2\right)"),
        (r"\text{Evelyn}", r"\text{Evelyn}"),
        (r"\frac{\pi}{4}", "0.7853981633974483"),
        ("y = 2x", "y=2x"),
        ("6-5i", "6 - 5i"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
        (r"x \in [-2, 7]", "[-2,7]"),
        (r"\text{Evelyn}", "evelyn"),
        ("Evelyn", r"\text{Evelyn}"),
        ("abc", "cab"),
        ("1011_2", "1011_{2}"),
        (r"12\pi", r"12\pi\text{ cm}^2"),
        (r"12\pi\text{ cm}^2", r"12\pi"),
        (r"12\pi", r"12\pi\mbox{ cm}^2"),
        (r"\frac{\pi}{2}", r"\frac{\pi}{2} radians"),
        (r"5x", r"5x\text{ dollars}"),
        ("5", "5 m/s"),
        ("5 m/s", "5"),
        ("5 m", r"5\text{ m}"),
        (r"12\pi i", r"12\pi\mathrm{i}"),
        ("3+4i", r"3+4\mathrm{i}"),
        ("2e", r"2\mathrm{e}"),
        (r"7\text{ million}", "7 million"),
        (r"2^{10}\text{ ways}", "1024"),
        (r"x=6 \text{ or } x=7", "6, 7"),
        ("C", r"\mbox{C}"),
        (r"100\text{ kg}\,\text{m}\,\text{s}^{-2}", "100"),
        (r"4\mathrm{~kW}", "4"),
        ("4 kJ", "4"),
        (r"100\text{ times}", "100"),
        (r"11\text{th}", "11"),
        (r"10\text{ a.m.}", "10 a.m."),
        (r"\frac{10000}{3}", "10\\,000/3"),
        (r"(-\infty,-2]\cup[3,\infty)", r"[3,\infty) \cup (-\infty,-2]"),
        (r"3\pm\sqrt2", r"3+\sqrt2, 3-\sqrt2"),
        (r"\emptyset", r"\varnothing"),
    ],
)
def test_is_equal_when_answers_say_the_same_then_true(
    equivalence: Equivalence, gold: str, candidate: str
) -> None:
    assert equivalence.is_equal(gold, candidate)


@pytest.mark.parametrize(
    ("gold", "candidate"),
    [
        (r"2\sqrt{3}", r"2\sqrt{5}"),
        (r"\frac{a}{bc}", r"\frac{ab}{c}"),
        (r"x^{12}", r"x^{1}2"),
        (r"2\sqrt{3}", r"2\sqrt{3}, 5"),
        (r"2\sqrt{3}", r"\sqrt{4 \cdot 3}"),
        ("(1, 2)", r"\{1, 2\}"),
        ("1, 2", "1, 2, 3"),
        (r"x^2-1", "(x-1)(x+1)"),
        (r"\sqrt{2}", "1.41"),
        (r"\pi", r"\{"),
        (r"\pi", r"\frac{"),
        (r"\pi", "__import__('os')"),
        ("BAC", "ABC"),
        ("DBCA", r"\text{ABCD}"),
        ("Mike", "Kime"),
        (r"\triangle", "ABC"),
        ("1011_2", "1011_3"),
        ("1011_{2}", "1011_3"),
        ("7", r"7\text{ million}"),
        (r"7\text{ million}", "7"),
        ("3am", "3pm"),
        (r"\text{4:30 p.m.}", r"4:30\text{ a.m.}"),
        (r"y=\frac{\mathrm{gb}}{f}", r"y=\frac{\mathrm{cb}}{f}"),
        ("-9.8 t", "-9.8"),
        ("b > a > c", "b > a"),
        (r"12\pi", r"12\pi\text{ million}"),
        (r"12\pi\text{ million}", r"12\pi"),
        (r"12\pi", r"12\pi\text{ squared}"),
        (r"12\pi", r"12\pi\mathrm{i}"),
        (r"12\pi", r"12\pi\mathrm{e}"),
        (r"12\pi", r"13\pi\text{ cm}"),
        ("5", r"5\mathrm{i}"),
        (r"5\mathrm{i}", "5"),
        ("3t", "3"),
        ("2xy", "2"),
        ("2xy", "2xz"),
        (r"\frac{1}{3} \pi r^2 h", r"\frac{1}{3} \pi r^2"),
        ("3x + 2t", "3x + 2"),
        ("2^{n} m", "2^n"),
        (r"5\frac{m}{s}", "5"),
        (r"n\text{ is odd}", r"n\text{ is even}"),
        (r"n\text{ is odd}", "n"),
        (r"x\text{ cm}", r"y\text{ cm}"),
        ("C", r"\mbox{D}"),
        (r"\text{A}, \text{B} and \text{C}", r"\text{A}, \text{B} and \text{F}"),
        (r"\text{B}\text{ and }\text{C}", r"\text{B}\text{ and }\text{F}"),
        (r"\text{A}\text{C}", r"\text{A}"),
        (r"\text{Plan }\text{A}", r"\text{Plan }\text{C}"),
        (r"\mathrm{A}\cap\mathrm{C}", r"\mathrm{A}\cap\mathrm{F}"),
        ("AB", r"AB\text{C}"),
        (r"M\mathrm{T}", "M"),
        ("5 times x", "5"),
        (r"(-\infty,-2]\cup[3,\infty)", r"(3,\infty)\cup[-\infty,-2]"),
        (r"3\pm\sqrt2", r"3+\sqrt2, 3+\sqrt2"),
    ],
)
def test_is_equal_when_answers_differ_or_cannot_be_read_then_false(
    equivalence: Equivalence, gold: str, candidate: str
) -> None:
    assert not equivalence.is_equal(gold, candidate)


@pytest.mark.parametrize(
    ("problem", "gold", "echo"),
    [
        (r"Simplify $\sqrt{12}$.", r"2\sqrt{3}", r"\sqrt{12}"),
        ("Factor $x^2 + 3x - 4$.", "(x-1)(x+4)", "x^2+3x-4"),
        (r"Simplify $\sqrt{12}$.", r"2\sqrt{3}", r"\sqrt{12}\text{ cm}"),
        (r"Rationalise $\dfrac{1}{\sqrt{2}}$.", r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt 2}"),
    ],
)
def test_cheat_when_the_answer_is_a_formula_of_the_question_then_is_wrong(
    equivalence: Equivalence, problem: str, gold: str, echo: str
) -> None:
    assert equivalence.is_equal(gold, echo)
    assert not equivalence.is_equal(gold, echo, problem=problem)
    assert equivalence.is_equal(gold, gold, problem=problem)
    assert equivalence.is_equal(gold, gold, problem=f"{problem} Is it ${gold}$?")


def test_agree_when_neither_is_the_reference_then_order_does_not_matter(
    equivalence: Equivalence,
) -> None:
    assert equivalence.agree(r"\sqrt{12}", r"2\sqrt{3}")
    assert equivalence.agree(r"2\sqrt{3}", r"\sqrt{12}")
    assert not equivalence.agree(None, "5")


def test_ask_when_the_answer_eats_processor_time_then_is_a_verdict_and_the_next_one_works() -> None:
    pool = WorkerPool(1, cpu_s=1.0, timeout_s=60, wait_s=60)
    assert pool.ask(r"\pi", TOO_HARD) == "too_hard"
    assert pool.ask(r"2\sqrt{3}", r"\sqrt{12}") == "equal"
    pool.close()


def test_ask_when_the_process_was_killed_then_another_one_answers() -> None:
    pool = WorkerPool(1, cpu_s=3, timeout_s=60, wait_s=60)
    assert pool.ask("x", "x") == "equal"
    worker = pool._seats.get()  # pyright: ignore[reportPrivateUsage]
    assert worker is not None
    os.kill(worker.pid, signal.SIGKILL)
    pool._seats.put(worker)  # pyright: ignore[reportPrivateUsage]
    assert pool.ask("x", "y") == "different"
    pool.close()


def test_ask_when_the_machine_is_slow_then_is_a_retryable_error_and_no_verdict(
    tmp_path: Path,
) -> None:
    worker = _worker(tmp_path, SLEEPER)
    with pytest.raises(DeadlineError) as raised:
        worker.ask("x", "y", cpu_s=5, timeout_s=0.2)
    assert raised.value.retryable
    worker.close()


def test_ask_when_native_code_never_returns_then_is_the_answers_fault(tmp_path: Path) -> None:
    worker = _worker(tmp_path, SPINNER)
    assert worker.ask("x", "y", cpu_s=0.05, timeout_s=1.5) == "too_hard"
    assert not worker.is_usable


def test_ask_when_the_process_ends_then_is_a_retryable_error(tmp_path: Path) -> None:
    worker = _worker(tmp_path, QUITTER)
    with pytest.raises(UnavailableError, match="status 7"):
        worker.ask("x", "y", cpu_s=1, timeout_s=30)
    worker.close()


def test_ask_when_no_process_is_free_then_says_overloaded() -> None:
    pool = WorkerPool(1, cpu_s=1, timeout_s=10, wait_s=0.05)
    pool._seats.get()  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(OverloadedError, match="busy"):
        pool.ask("x", "y")
