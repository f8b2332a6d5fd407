import math
import random

import pytest

from lead.router.model_pool import (
    Admitted,
    MeasureModel,
    ModelPool,
    ModelState,
    NotServed,
    PooledModel,
    StartModel,
    StopModel,
)
from shared.errors import IntegrityError

CPU = "CPU"


class House:
    """A pool whose starts and stops succeed when the test says so. Models not in `needs` need 1."""

    def __init__(self, names="abc", room=2, maximum=0, needs=(), **options):
        self.pool = ModelPool(maximum)
        self.room = {CPU: room}
        self.now = 0.0
        self.refused = {}
        self.admitted = []
        for name in names:
            self.pool.add(PooledModel(name, **options))
            self.pool.measured(name, {CPU: dict(needs).get(name, 1)})

    def ask(self, ticket, name):
        self.pool.ask(ticket, name)
        return self.step()

    def step(self):
        """The starts and stops that are due."""
        self.now += 1
        found = []
        while actions := self.pool.next(self.now, lambda: self.room):
            for action in actions:
                match action:
                    case Admitted(ticket, _):
                        self.admitted.append(ticket)
                    case NotServed(ticket, reason):
                        self.refused[ticket] = reason
                    case _:
                        found.append(action)
        self.pool.check_integrity()
        return found

    def load(self, name):
        self.pool.loaded(name, self.now)
        return self.step()

    def release(self, name):
        self.pool.release(name, self.now)
        return self.step()

    def end(self, name, failure="", **options):
        for refused in self.pool.ended(name, failure, **options):
            self.refused[refused.ticket] = refused.reason
        return self.step()

    def serve(self, ticket, name):
        """Serve a request from its beginning to its end. The model is loaded."""
        self.ask(ticket, name)
        if self.state(name) is ModelState.LOADING:
            self.load(name)
        return self.release(name)

    def state(self, name):
        return self.pool.models[name].state


def test_a_model_is_started_once_for_all_requests_that_need_it():
    house = House()
    assert house.ask(1, "a") == [StartModel("a")]
    assert house.ask(2, "a") == []
    assert not house.admitted
    house.load("a")
    assert house.admitted == [1, 2]


@pytest.fixture
def unmeasured():
    house = House("")
    house.pool.add(PooledModel("a"))
    assert house.ask(1, "a") == [MeasureModel("a")]
    return house


def test_what_it_needs_is_measured_first(unmeasured):
    assert unmeasured.ask(2, "a") == []
    unmeasured.pool.measured("a", {CPU: 1})
    assert unmeasured.step() == [StartModel("a")]


def test_a_model_that_cannot_be_measured_refuses_its_requests_and_is_measured_again_for_the_next(unmeasured):
    assert list(unmeasured.pool.cannot_measure("a", "damaged")) == [NotServed(1, "damaged")]
    assert unmeasured.ask(2, "a") == [MeasureModel("a")]


def test_a_model_that_is_being_measured_is_not_forgotten(unmeasured):
    unmeasured.pool.withdraw(1)
    assert not unmeasured.pool.forget("a")


def test_the_least_recently_used_one_goes_for_the_next():
    house = House()
    for name in "aba":
        house.serve(name, name)
    assert house.ask(9, "c") == [StopModel("b")]
    assert house.end("b") == [StartModel("c")]


def test_one_that_answers_is_stopped_after_its_last_answer_and_gets_no_further_requests():
    house = House(room=1)
    house.ask(1, "a")
    house.load("a")
    assert house.ask(2, "b") == []
    assert house.ask(3, "a") == []
    assert house.admitted == [1]
    assert house.release("a") == [StopModel("a")]
    assert house.end("a") == [StartModel("b")]
    house.load("b")
    assert house.release("b") == [StopModel("b")]
    assert house.end("b") == [StartModel("a")]
    house.load("a")
    assert house.admitted == [1, 2, 3]


def test_a_model_that_does_not_answer_anything_goes_before_one_that_does():
    house = House()
    house.serve(1, "a")
    house.ask(2, "b")
    house.load("b")
    house.serve(3, "a")  # used later than b
    assert house.ask(4, "c") == [StopModel("a")]


def test_when_the_waiting_request_leaves_nobody_has_to_go():
    house = House(room=1)
    house.ask(1, "a")
    house.load("a")
    house.ask(2, "b")
    house.pool.withdraw(2)
    assert house.release("a") == []
    house.ask(3, "a")
    assert house.admitted == [1, 3]


@pytest.mark.parametrize(
    ("options", "goes"),
    [({"room": 4, "needs": {"a": 1, "b": 3, "c": 3}}, "b"), ({"room": 100, "maximum": 2}, "a")],
    ids=["only as many as have to", "at most so many stay, whatever the room"],
)
def test_for_a_third_model_goes(options, goes):
    house = House(**options)
    house.serve(1, "a")
    house.serve(2, "b")
    assert house.ask(3, "c") == [StopModel(goes)]


def test_a_place_without_room_counts_as_well():
    house = House()
    house.room = {CPU: 100, "GPU": 1}
    for name in "ab":
        house.pool.measured(name, {CPU: 1, "GPU": 1})
    house.serve(1, "a")
    assert house.ask(2, "b") == [StopModel("a")]


def test_one_that_is_too_large_is_tried_alone():
    house = House(needs={"c": 5})
    house.serve(1, "a")
    assert house.ask(2, "c") == [StopModel("a")]
    assert house.end("a") == [StartModel("c")]


def test_a_pinned_model_stays_and_nobody_goes_for_one_that_does_not_fit_beside_it():
    house = House(needs={"c": 2})
    house.pool.models["a"].pinned = True
    house.serve(1, "a")
    house.serve(2, "b")
    assert house.ask(3, "c") == []
    assert house.refused == {3: "c does not fit into memory beside the pinned models (a). Pin fewer models"}
    assert house.state("a") is house.state("b") is ModelState.LOADED


def test_a_model_that_is_being_loaded_is_waited_for_before_it_goes():
    house = House(room=1)
    house.ask(1, "a")
    assert house.ask(2, "b") == []
    assert house.load("a") == []
    assert house.release("a") == [StopModel("a")]


def test_an_idle_model_is_unloaded_in_time_unless_pinned():
    house = House(idle_seconds=10.0)
    house.pool.models["b"].pinned = True
    house.serve(1, "a")
    house.serve(2, "b")
    used_at = house.pool.models["a"].used_at
    assert house.pool.deadline() == used_at + 10
    house.now = used_at + 8
    assert house.step() == []
    assert house.step() == [StopModel("a")]
    assert house.pool.deadline() is None


def test_a_request_may_say_how_long_it_stays():
    house = House()
    house.ask(1, "a")
    house.load("a")
    house.pool.keep("a", 0.0)
    assert house.release("a") == [StopModel("a")]
    house.end("a")
    house.ask(2, "a")
    house.pool.keep("a", math.inf)
    house.load("a")
    assert house.release("a") == []


def test_one_that_is_not_to_stay_at_all_answers_first_who_waits_for_it():
    house = House()
    house.pool.keep("a", 0.0)
    for ticket in range(50):
        assert house.ask(ticket, "a") == [StartModel("a")]
        assert house.load("a") == []
        assert house.release("a") == [StopModel("a")]
        house.end("a")
    assert house.admitted == list(range(50))


def test_one_that_nobody_waits_for_any_more_is_not_kept_if_it_is_not_to_stay():
    house = House()
    house.pool.keep("a", 0.0)
    house.ask(1, "a")
    house.pool.withdraw(1)
    assert house.load("a") == [StopModel("a")]


def test_a_person_unloads_a_model_while_it_is_being_loaded_and_who_waits_has_it_loaded_again():
    house = House()
    house.ask(1, "a")
    house.pool.unload("a")
    assert house.step() == [StopModel("a")]
    assert house.end("a", "killed") == [StartModel("a")]
    house.load("a")
    assert (house.admitted, house.refused) == ([1], {})


def test_one_that_is_being_loaded_for_nobody_goes_for_the_next():
    house = House(room=1)
    house.ask(1, "a")
    house.pool.withdraw(1)
    assert house.ask(2, "b") == [StopModel("a")]
    assert house.end("a") == [StartModel("b")]


def test_a_model_is_forgotten_unless_somebody_needs_it():
    house = House("ab", room=1)
    house.ask(1, "a")
    house.ask(2, "b")
    assert not house.pool.forget("a")
    assert not house.pool.forget("b")
    house.pool.withdraw(2)
    assert house.pool.forget("b")
    house.load("a")
    house.end("a", "killed")
    assert not house.pool.forget("a")
    house.pool.release("a", house.now)
    assert house.pool.forget("a")


def test_a_person_unloads_a_model_after_its_answers():
    house = House()
    house.ask(1, "a")
    house.load("a")
    house.pool.unload("a")
    assert house.step() == []
    assert house.release("a") == [StopModel("a")]
    house.end("a")
    house.pool.unload("a")
    assert house.step() == []


def test_a_process_that_dies_while_it_is_loaded_is_started_again_some_times():
    house = House()
    house.ask(1, "a")
    for _ in range(8):
        assert house.end("a", "killed") == [StartModel("a")]
    assert house.end("a", "killed") == []
    assert house.refused == {1: "killed"}
    assert house.ask(2, "a") == [StartModel("a")]


def test_a_wrong_option_is_not_tried_again():
    house = House()
    house.ask(1, "a")
    assert house.end("a", "no such file", is_final=True) == []
    assert house.refused == {1: "no such file"}
    assert house.pool.models["a"].failure == "no such file"
    house.ask(2, "a")
    house.load("a")
    assert house.pool.models["a"].failure == ""


def test_an_impossible_report_raises():
    with pytest.raises(IntegrityError, match="a is unloaded, expected"):
        House().pool.loaded("a", 0.0)


class RandomHouse(House):
    """A house in which any event may happen, in any order."""

    def __init__(self, rng):
        super().__init__("abcd", room=5, maximum=3, needs={"a": 1, "b": 2, "c": 3, "d": 4})
        self.rng = rng
        self.starting, self.stopping, self.running, self.waiting = [], [], [], {}

    def request(self, ticket):
        self.waiting[ticket] = name = self.rng.choice("abcd")
        self.note(self.ask(ticket, name))

    def command(self):
        """A random command of a person or a client to a model."""
        name = self.rng.choice("abcd")
        match self.rng.randrange(3):
            case 0:
                self.pool.keep(name, self.rng.choice([0.0, 5.0, math.inf]))
            case 1:
                self.pool.unload(name)
            case _ if self.waiting:
                ticket = self.rng.choice(list(self.waiting))
                del self.waiting[ticket]
                self.pool.withdraw(ticket)
        self.note(self.step())

    def happen(self, *events):
        """Let one of these events happen, if it can."""
        event = self.rng.choice(events)
        names = {"load": self.starting, "end": self.stopping, "release": self.running}.get(event)
        if event == "death" and (awake := self.pool.awake()):
            self.note(self.end(self.rng.choice(awake).name, "killed"))
        elif names:
            self.note(getattr(self, event)(names.pop(self.rng.randrange(len(names)))))

    def note(self, actions):
        self.starting += [each.name for each in actions if isinstance(each, StartModel)]
        stopping = [each.name for each in actions if isinstance(each, StopModel)]
        self.starting = [name for name in self.starting if name not in stopping]
        self.stopping += stopping
        self.running += [self.waiting.pop(ticket) for ticket in self.admitted]
        self.admitted.clear()
        models = self.pool.models.values()
        present = [model for model in models if model.state is not ModelState.UNLOADED]
        assert len(present) <= 3
        assert sum(model.need[CPU] for model in present) <= 5


def test_every_request_is_served_and_the_room_is_never_exceeded():
    """Any order of requests, answers, ends and deaths, and of commands that keep or unload a model."""
    for seed in range(20):
        house, n_commands = RandomHouse(random.Random(seed)), 200 * (seed % 2)
        for number in range(300):
            house.request(number)
            for _ in range(house.rng.randrange(4)):
                house.happen("load", "end", "release", "death")
            if number < n_commands:
                house.command()
        for _ in range(5000):
            house.happen("load", "end", "release")
        assert (house.waiting, house.running, house.refused) == ({}, [], {}), f"seed {seed}"
