"""The sizes to which steps are padded, on a GPU that has to record each new width."""

import pytest

from lead.engine.speculation.widths import Widths
from shared.step_cost import StepCost

T1 = 0.01
FIRST, SECOND = 0.002, 0.004
GENTLE = {1: 1.0, 2: 1.05, 3: 1.1, 4: 1.15, 5: 1.2}
RATE = 1 / T1
"""The tokens per second without drafts."""


def cost_of(table, settling=(FIRST, SECOND), *, settles=True):
    cost = StepCost(settles=settles)
    cost.learn_table({n: T1 * ratio for n, ratio in table.items()})
    cost.learn_settling(settling)
    return cost


def settled(cost, width):
    """Note that the last steps had this width."""
    cost.last_size, cost._n_of_size = width, 9
    return cost


def used_to(width, table=None):
    """Widths for which this width was best in most steps."""
    cost = settled(cost_of(table or GENTLE), width)
    widths = Widths(cost, pads=True)
    for _ in range(20):
        widths.learn(1, [1.0 + 0.5 * min(n, width - 1) for n in range(5)], RATE)
    return widths


def test_at_the_usual_width_fewer_tokens_are_padded_to_it():
    widths = used_to(3)
    assert [widths.width(1, 0), widths.width(2, 1), widths.width(3, 2)] == [3, 3, 3]
    assert widths.seconds(range(1, 4)) == pytest.approx([1.1 * T1] * 3)


def test_a_step_is_padded_to_the_last_width_up_to_the_widest_that_is_measured_by_itself():
    flat = cost_of({1: 1.0, 32: 1.05, 64: 1.1})
    assert Widths(settled(flat, 32), pads=True).width(8, 4) == 32
    assert Widths(settled(flat, 64), pads=True).width(8, 4) == 8


def test_a_wider_step_is_charged_with_both_ways():
    (seconds,) = used_to(2).seconds(range(4, 5))
    assert seconds == pytest.approx(1.15 * T1 + FIRST + FIRST + SECOND)


def test_away_from_the_usual_width_the_way_back_is_charged_in_any_case():
    widths = used_to(2)
    settled(widths._cost, 4)
    assert widths.seconds(range(2, 3)) == pytest.approx([1.05 * T1 + FIRST + SECOND])
    assert widths.seconds(range(4, 5)) == pytest.approx([1.15 * T1 + FIRST + SECOND])


def test_a_wide_step_without_drafts_may_not_be_worth_it():
    steep = {1: 1.0, 2: 1.5, 3: 3.0, 4: 4.0, 5: 5.0}
    assert used_to(3, steep).width(1, 0) == 1


def test_a_better_width_has_to_pay_for_the_change_first():
    widths = used_to(1)
    yields = [1.0, 1.15]
    n = 0
    while widths._usual == 1:
        widths.learn(1, yields, RATE)
        n += 1
    assert n >= (FIRST + SECOND) * RATE / 0.1


def test_where_each_step_has_another_best_width_none_is_usual():
    """The width changes in each step, so the slow second step of a width never comes."""
    widths = Widths(settled(cost_of({n: 1 + 0.3 * n for n in range(18)}, (0.0001, 0.02)), 1), pads=True)
    for n in range(200):
        depth = (0, 4, 8, 12)[n % 4]
        widths.learn(1, [1.0 + 0.6 * min(i, depth) for i in range(17)], RATE)
    assert widths._usual == 0
    assert widths.width(5, 4) == 5


def test_other_numbers_of_sequences_begin_anew():
    widths = used_to(4)
    widths.learn(3, [3.0, 3.1], RATE)
    assert widths._usual == 3


def test_a_dip_is_used_without_any_cost_of_changes():
    """As on Strix Halo, three tokens take six times as long as two or four."""
    widths = Widths(cost_of({1: 1.0, 2: 1.04, 3: 6.0, 4: 1.06, 5: 9.6, 6: 3.0}, (0, 0)), pads=True)
    assert [widths.width(n, n - 1) for n in range(1, 6)] == [1, 2, 4, 4, 6]
    assert widths.seconds(range(1, 4)) == pytest.approx([T1, 1.04 * T1, 1.06 * T1])


DIP = {1: 1.0, 2: 3.0, 3: 1.1}


@pytest.mark.parametrize(
    ("cost", "pads"),
    [(cost_of(GENTLE, (0, 0)), True), (cost_of(DIP, settles=False), True), (cost_of(DIP), False)],
    ids=["changes cost nothing", "on a CPU", "padding cannot be taken back"],
)
def test_nothing_is_padded_where(cost, pads):
    widths = Widths(settled(cost, 3), pads=pads)
    for _ in range(20):
        widths.learn(1, [1, 1.9, 2.7], RATE)
    assert [widths.width(n, n - 1) for n in (1, 2, 3)] == [1, 2, 3]


def test_on_a_cpu_a_step_costs_what_it_takes():
    widths = Widths(cost_of(GENTLE, settles=False), pads=True)
    assert widths.seconds(range(1, 4)) == pytest.approx([T1, 1.05 * T1, 1.1 * T1])
