import random

import pytest

from lead.backs.assignment import MAX_ASKED, UPDATE_SECONDS, Assignment
from lead.backs.back import TRIAL_UPDATES
from tests.lead.backs.harness import connected

SLOW, FAST = 0.05, 0.0015  # seconds of a step


class Text:
    """Sequences that grow by a token in each step. Each back has its own chance to draft it right."""

    def __init__(self, step_seconds=SLOW, n_sequences=1):
        self.now = 0.0
        self.skill: dict[str, float] = {}
        self.assignment = Assignment(0.0)
        self.n_updates = 0
        self.names = [f"s{i}" for i in range(n_sequences)]
        self._step_seconds = step_seconds
        self._rng = random.Random(5)
        for name in self.names:
            self.assignment.open(name, 0.0)

    def join(self, skill, n=1):
        names = [f"back-{len(self.skill) + i}" for i in range(n)]
        for name in names:
            self.skill[name] = skill
            self.assignment.join(connected(name), self.now)
        return names

    def leave(self, name):
        del self.skill[name]
        self.assignment.leave(self.assignment.backs[name], self.now)

    def run(self, n_steps):
        """Return the number of updates per step for each back."""
        asked = dict.fromkeys(self.skill, 0)
        for _ in range(n_steps):
            for sequence in self.names:
                self._step(sequence, asked)
            self.now += self._step_seconds
            self.assignment.check_integrity()
        return {name: n / n_steps for name, n in asked.items()}

    def _step(self, sequence, asked):
        n_right = {}
        for back in self.assignment.asked(sequence):
            n_right[back.name] = int(self._rng.random() < self.skill[back.name]), 0
            self.n_updates += 1
            asked[back.name] += 1
        self.assignment.on_step(sequence, n_right, self._step_seconds, self.now)


def test_a_few_backs_are_all_asked():
    text = Text()
    text.join(0.7, n=MAX_ASKED)
    assert set(text.run(200).values()) == {1.0}


def test_of_many_backs_a_few_are_asked():
    text = Text()
    text.join(0.7, n=40)
    text.run(400)
    assert len(text.assignment.asked("s0")) <= MAX_ASKED + 1


def test_the_best_back_is_found_among_many_useless_ones():
    text = Text()
    text.join(0.0, n=60)
    (good,) = text.join(0.8)
    text.run(3000)
    asked = text.run(200)
    assert asked.pop(good) == 1.0
    assert sum(asked.values()) <= 1.0, "more than one is on trial"


def test_a_better_back_that_arrives_is_found():
    text = Text()
    text.join(0.3, n=8)
    text.run(1000)
    (better,) = text.join(0.9)
    text.run(500)
    assert text.run(100)[better] == 1.0


def test_when_the_best_back_leaves_others_take_its_place():
    text = Text()
    (best,) = text.join(0.9)
    text.join(0.4, n=10)
    text.run(1000)
    text.leave(best)
    text.run(200)
    assert sum(text.run(100).values()) >= 1.0


def test_a_back_that_becomes_useful_is_noticed():
    text = Text()
    (back,) = text.join(0.0)
    text.run(1000)
    text.skill[back] = 0.8
    text.run(2 * TRIAL_UPDATES)
    assert text.run(100)[back] == 1.0


@pytest.mark.parametrize("step_seconds", [SLOW, FAST])
@pytest.mark.parametrize("skill", [0.0, 0.9])
def test_many_backs_take_little_of_the_time(step_seconds, skill):
    text = Text(step_seconds)
    text.join(skill, n=128)
    n_steps = 2000
    text.run(n_steps)
    minimum = UPDATE_SECONDS / step_seconds if skill else 0.0  # of the one that is always asked
    assert text.n_updates * UPDATE_SECONDS / (n_steps * step_seconds) < max(0.05, minimum + 0.02)


def test_a_token_that_came_too_late_counts_for_less():
    assignment = Assignment(0.0)
    assignment.open("s", 0.0)
    late, early, silent = backs = [connected(name) for name in ("late", "early", "silent")]
    for back in backs:
        assignment.join(back, 0.0)
        assert back in assignment.asked("s")
    assignment.on_step("s", {"early": (1, 0), "late": (0, 1)}, None, 0.1)
    assert silent.gain < late.gain < early.gain


class Conversation:
    """A text that grows by a drafting back's right tokens and one more, and backs that repeat the text."""

    def __init__(self, n_repeating):
        self.assignment, self.now = Assignment(0.0), 0.0
        self.repeating = [f"repeating-{i}" for i in range(n_repeating)]
        for name in ("drafting", *self.repeating):
            self.assignment.join(connected(name), 0.0)
        self.assignment.open("s", 0.0)
        self._rng = random.Random(3)

    def tokens_per_step(self, n_steps):
        return sum(self._step() for _ in range(n_steps)) / n_steps

    def _step(self):
        asked = [back.name for back in self.assignment.asked("s")]
        n_drafted = int("drafting" in asked and self._rng.random() < 0.5)
        self.now += 0.005
        n_right = {name: (0, 1 + n_drafted) for name in asked if name != "drafting"}
        self.assignment.on_step("s", n_right | {"drafting": (n_drafted, 0)}, 0.005, self.now)
        return 1 + n_drafted


@pytest.mark.parametrize("n", [1, 8])
def test_a_back_that_repeats_what_it_is_told_takes_no_place_for_long(n):
    conversation = Conversation(n)
    conversation.tokens_per_step(2000)
    assert conversation.tokens_per_step(1000) > 1.4


def test_backs_share_sequences_among_themselves():
    text = Text(n_sequences=8)
    text.join(0.7, n=16)
    text.run(2000)
    asked = [back.n_asked for back in text.assignment.backs.values()]
    assert max(asked) <= 5
    assert sum(each > 0 for each in asked) >= 12


def parts(text, sequence="s0"):
    assignment = text.assignment
    found = {back.name: assignment.part(sequence, back) for back in assignment.asked(sequence)}
    return {name: (part.index, part.of) if part else None for name, part in found.items()}


@pytest.mark.parametrize(
    ("skills", "leaves", "expected"),
    [
        pytest.param(
            [0.7] * 3, None, [None, (1, 3), (2, 3)], id="equal ones beside the first, which has all"
        ),
        pytest.param([0.7, 0.9], None, [(1, 2), None], id="one that is clearly better has all"),
        pytest.param([0.7], None, [None], id="one alone has all"),
        pytest.param([0.7] * 3, 1, [None, (1, 2)], id="the part of one that leaves is taken over"),
        pytest.param([0.9, 0.9, 0.2], None, [None, (1, 2), None], id="a much worse one has no part"),
    ],
)
def test_side_branches_are_divided(skills, leaves, expected):
    text = Text()
    names = [name for skill in skills for name in text.join(skill)]
    text.run(400)
    if leaves is not None:
        text.leave(names.pop(leaves))
    assert parts(text) == dict(zip(names, expected, strict=True))


def test_a_sequence_without_backs_has_no_parts():
    text = Text()
    text.join(0.7)
    assert text.assignment.part("another", text.assignment.backs["back-0"]) is None
