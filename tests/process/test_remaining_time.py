"""The time left of counts in lines of progress."""

from __future__ import annotations

from dpdist.process.remaining_time import with_time_left


def test_a_count_of_some_seconds_says_how_long_the_rest_takes() -> None:
    """Ten of the 100 blocks took 6 s, so the other 60 take 36 s; not in the first seconds, at the end, or without a number."""
    clock, lines = iter([0.0, 3.0, 6.0, 60.0]), list[str]()
    tell = with_time_left(lambda stage, line: lines.append(f"{stage}: {line}"), lambda: next(clock))
    for line in ("30 of 100 blocks", "35 of 100 blocks", "40 of 100 blocks", "100 of 100 blocks", "written"):
        tell("measure", line)
    assert lines == [
        "measure: 30 of 100 blocks",
        "measure: 35 of 100 blocks",
        "measure: 40 of 100 blocks, about 36 s left",
        "measure: 100 of 100 blocks",
        "measure: written",
    ]


def test_every_stage_and_every_total_has_a_rate_of_its_own() -> None:
    """1,000 of 2,000 rows are no step of the 10 tasks before them."""
    clock, lines = iter([0.0, 100.0, 110.0]), list[str]()
    tell = with_time_left(lambda _, line: lines.append(line), lambda: next(clock))
    for line in ("1 of 10 tasks", "1,000 of 2,000 rows", "1,500 of 2,000 rows"):
        tell("answer", line)
    assert lines == ["1 of 10 tasks", "1,000 of 2,000 rows", "1,500 of 2,000 rows, about 10 s left"]


def test_a_solve_says_how_long_the_next_digit_takes() -> None:
    """Two digits in 20 s; nothing is said in the first seconds, where no gap is known, or where it did not narrow."""
    clock, lines = iter([0.0, 1.0, 20.0, 30.0]), list[str]()
    tell = with_time_left(lambda _, line: lines.append(line), lambda: next(clock))
    gaps = ("nothing certified yet", *(f"certified gap {gap}" for gap in ("1.0e-01", "5.0e-02", "1.0e-03", "2.0e-01")))
    for line in gaps:
        tell("plan", f"iteration 3: cost 7, {line}")
    assert [line.partition("cost 7, ")[2] for line in lines] == [
        *gaps[:3],
        "certified gap 1.0e-03, a tenth of it in about 10 s",
        gaps[4],
    ]
