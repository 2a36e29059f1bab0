"""What a soak's figures say."""

from soak import effective_ratio


def test_the_effective_ratio_is_what_steps_would_have_taken_over_what_they_took() -> None:
    walls = [10.0] * 20 + [30.0] + [10.0] * 19  # one of the 30 after the quiet 10 takes 20 s more

    assert effective_ratio(walls, 10) == round(300.0 / 320.0, 3)


def test_steps_that_get_faster_by_themselves_do_not_hide_a_loss() -> None:
    walls = [20.0] * 20 + [5.0] * 10 + [45.0] + [5.0] * 29

    # Of the median of all quiet steps, 20 s, the 40 steps after them would have taken 800 s.
    assert effective_ratio(walls, 20) < 0.9
