from contextlib import contextmanager

from bench.asking import Reading
from bench.contest import Course, Way, hold

COURSE = Course(kinds=["stories", "lists"], n_each=2, n_repeats=2, seed=3)


class House:
    """Remembers who was asked what, and whether backs were there."""

    def __init__(self):
        self.connected = False
        self.asked = []

    @contextmanager
    def connect(self):
        self.connected = True
        yield
        self.connected = False

    def way(self, name, *, with_backs):
        def ask(prompt):
            self.asked.append((name, self.connected, prompt))
            return Reading(name, 1, 1.0)

        return Way(name, ask, with_backs)


def held(*ways, house):
    return hold([house.way(name, with_backs=with_backs) for name, with_backs in ways], COURSE, house.connect)


def test_every_way_answers_the_same_prompts():
    house = House()
    held(("a", False), ("b", True), ("c", True), house=house)
    asked = {name: {prompt for way, _, prompt in house.asked if way == name} for name in "abc"}
    assert asked["a"] == asked["b"] == asked["c"]
    assert len(asked["a"]) == 8


def test_backs_are_there_exactly_for_the_ways_that_have_them():
    house = House()
    held(("a", False), ("b", True), house=house)
    assert {(name, connected) for name, connected, _ in house.asked} == {("a", False), ("b", True)}


def test_which_half_comes_first_alternates():
    house = House()
    runs = held(("a", False), ("b", True), house=house)
    order = [run.way for run in runs]
    assert (order[0], order[8]) == ("a", "b")


def test_no_back_is_started_for_nobody():
    def connect():
        raise AssertionError

    house = House()
    assert len(hold([house.way("a", with_backs=False)], COURSE, connect)) == 8


def test_each_repeat_has_prompts_of_its_own():
    house = House()
    runs = held(("a", False), house=house)
    first, second = ({run.prompt for run in runs if run.repeat == repeat} for repeat in (0, 1))
    assert not first & second


def test_the_order_of_the_ways_is_shuffled():
    house = House()
    runs = held(*((name, True) for name in "abcd"), house=house)
    orders = {tuple(run.way for run in runs[i : i + 4]) for i in range(0, len(runs), 4)}
    assert len(orders) > 1
    assert all(sorted(order) == list("abcd") for order in orders)
