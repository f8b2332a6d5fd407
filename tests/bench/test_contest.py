from contextlib import contextmanager

from bench.client import Measurement
from bench.contest import Way, Workload, run_contest

WORKLOAD = Workload(kinds=["stories", "lists"], n_each=2, n_repeats=2, seed=3)


class FakeCluster:
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
            return Measurement(name, 1, 1.0)

        return Way(name, ask, with_backs)


def held(*ways, cluster):
    return run_contest(
        [cluster.way(name, with_backs=with_backs) for name, with_backs in ways], WORKLOAD, cluster.connect
    )


def test_every_way_answers_the_same_prompts():
    cluster = FakeCluster()
    held(("a", False), ("b", True), ("c", True), cluster=cluster)
    asked = {name: {prompt for way, _, prompt in cluster.asked if way == name} for name in "abc"}
    assert asked["a"] == asked["b"] == asked["c"]
    assert len(asked["a"]) == 8


def test_backs_are_there_exactly_for_the_ways_that_have_them():
    cluster = FakeCluster()
    held(("a", False), ("b", True), cluster=cluster)
    assert {(name, connected) for name, connected, _ in cluster.asked} == {("a", False), ("b", True)}


def test_which_half_comes_first_alternates():
    cluster = FakeCluster()
    runs = held(("a", False), ("b", True), cluster=cluster)
    order = [run.way for run in runs]
    assert (order[0], order[8]) == ("a", "b")


def test_each_repeat_has_prompts_of_its_own():
    cluster = FakeCluster()
    runs = held(("a", False), cluster=cluster)
    first, second = ({run.prompt for run in runs if run.repeat == repeat} for repeat in (0, 1))
    assert not first & second


def test_the_order_of_the_ways_is_shuffled():
    cluster = FakeCluster()
    runs = held(*((name, True) for name in "abcd"), cluster=cluster)
    orders = {tuple(run.way for run in runs[i : i + 4]) for i in range(0, len(runs), 4)}
    assert len(orders) > 1
    assert all(sorted(order) == list("abcd") for order in orders)
