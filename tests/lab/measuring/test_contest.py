"""Ways to answer are compared under the same conditions."""

from contextlib import contextmanager

import pytest

from lab.measuring.builtin_questions import rounds_of
from lab.measuring.contest import Way, run_contest
from lab.measuring.measured_answer import MeasuredAnswer
from shared.errors import EngineError


def contest(*stages, n_repeats=2):
    """Run stages, each a list of ways; return the runs, and (name, open stages, question) of each."""
    opened, asked = [], []

    def stage(names):
        @contextmanager
        def opening():
            opened.append(names)
            yield [way(name) for name in names]
            opened.remove(names)

        return opening

    def way(name):
        def ask(question):
            asked.append((name, list(opened), question))
            return MeasuredAnswer(name, 1, 1.0)

        return Way(name, ask)

    rounds = rounds_of(["stories", "lists"], 2, n_repeats, seed=3)
    return run_contest([stage(names) for names in stages], rounds, 3), asked


def test_every_way_answers_the_same_questions_which_are_others_in_each_repeat():
    _, asked = contest("a", "bc")
    questions = [{question for way, _, question in asked if way == name} for name in "abc"]
    assert questions == [questions[0]] * 3
    assert len(questions[0]) == 8


def test_a_stage_is_there_for_its_own_ways_alone():
    _, asked = contest("a", "bc")
    assert {(name, *opened) for name, opened, _ in asked} == {("a", "a"), ("b", "bc"), ("c", "bc")}


def test_which_stage_comes_first_alternates():
    runs, _ = contest("a", "b")
    assert "".join(run.way for run in runs) == "aaaabbbbbbbbaaaa"


def test_the_order_of_the_ways_is_shuffled():
    runs, _ = contest("abcd")
    orders = {tuple(run.way for run in runs[i : i + 4]) for i in range(0, len(runs), 4)}
    assert len(orders) > 1
    assert all(sorted(order) == list("abcd") for order in orders)


@contextmanager
def broken():
    raise EngineError("the engine has ended")
    yield


def test_a_stage_that_cannot_answer_costs_only_its_own_runs():
    @contextmanager
    def sound():
        yield [Way("a", lambda _: MeasuredAnswer("a", 1, 1.0))]

    rounds, failures = rounds_of(["stories"], 1, 2, seed=3), []
    runs = run_contest([broken, sound], rounds, 3, failed=lambda error: failures.append(str(error)))
    assert ([run.way for run in runs], failures) == (["a", "a"], ["the engine has ended"] * 2)


def test_a_failure_that_nobody_wants_to_be_told_ends_the_contest():
    with pytest.raises(EngineError):
        run_contest([broken], rounds_of(["stories"], 1, 1, seed=3), 3)
