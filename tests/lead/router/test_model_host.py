"""The processes of models, with fakes: started on demand, waited for, ended."""

import asyncio
import math
import random
from dataclasses import replace

import pytest

from lead.router.model_pool import ModelState
from lead.router.models_file import ServedModel
from lead.settings.lead_settings import LeadSettings
from shared.errors import ConfigError, NotServingError, QueueFullError, UnavailableError, UnusableModelError
from tests.lead.router.fakes import FakeProcess, House, failing, running_house, served, until

LOADING = ModelState.LOADING


@pytest.fixture
async def house():
    async with running_house() as house:
        yield house


async def use(house, name, **options):
    async with house.host.use(name, **options) as process:
        return process


async def test_whether_a_model_fits_is_known_by_its_file_until_it_is_measured():
    async with running_house(room=5, need=9) as house:
        room = house.host.room()
        assert (house.host.fits("a", 5, room), house.host.fits("a", 6, room)) == (True, None)
        await use(house, "a")
        assert house.host.fits("a", 5, room) is False


async def test_the_next_one_takes_the_place_of_the_one_before(house):
    await use(house, "a")
    await use(house, "b")
    assert house["a"].ended.done()
    assert house.host.process("a") is None
    assert house.host.process("b") is house["b"]


async def test_who_stops_waiting_leaves_no_trace(house):
    async with house.host.use("a"):
        waiting = asyncio.ensure_future(use(house, "b"))
        await until(lambda: house.host.state("a").is_leaving)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert house.host.process("a")
    assert house.host.pool.n_waiting == 0


async def test_who_is_admitted_and_cancelled_at_the_same_time_gives_the_model_back(house):
    waiting = asyncio.ensure_future(use(house, "a"))
    house.host.on_change = waiting.cancel  # called right after it was admitted
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert house.host.state("a").n_running == 0


async def test_a_model_whose_memory_is_unknown_says_why(house):
    async def fail(*_):
        raise ConfigError("damaged")

    house.host._measure_need = fail
    with pytest.raises(UnavailableError, match="damaged"):
        await use(house, "a")


@pytest.fixture
def damaged(tmp_path):
    """A model whose file is damaged."""
    path = tmp_path / "a.gguf"
    path.write_bytes(b"GGUF")
    return ServedModel("a", {"model": str(path)}, LeadSettings.from_options(model=path))


async def test_no_process_is_started_for_a_damaged_file_until_it_changes(damaged):
    async with running_house(models=[damaged]) as house:
        make, house.make = house.make, lambda: FakeProcess(failure=failing("it is incomplete"))
        for _ in range(2):
            with pytest.raises(UnusableModelError, match="it is incomplete"):
                await use(house, "a")
        assert len(house.processes) == 1
        damaged.path.write_bytes(b"GGUF, whole")
        house.make = make
        assert await use(house, "a") is house.processes[1]


async def test_a_damaged_file_is_measured_once(damaged):
    measured = []

    async def fail(*_):
        measured.append(1)
        raise ConfigError("it is incomplete")

    async with running_house(models=[damaged]) as house:
        house.host._measure_need = fail
        for _ in range(2):
            with pytest.raises(UnusableModelError, match="it is incomplete"):
                await use(house, "a")
    assert len(measured) == 1


async def test_a_model_that_cannot_be_loaded_at_the_start_does_not_end_the_host(damaged, caplog):
    async with running_house(models=[replace(damaged, on_startup=True)]) as house:
        house.make = lambda: FakeProcess(failure=failing("it is incomplete"))
        house.host.start()
        await until(lambda: "cannot load a: it is incomplete" in caplog.text)


async def test_a_process_that_cannot_be_started_is_tried_again_some_times(house):
    tried = []

    async def spawn():
        tried.append(1)
        raise OSError("no processes left")

    house.host._spawn = spawn
    with pytest.raises(UnavailableError, match="no processes left"):
        await use(house, "a")
    assert len(tried) == 9


async def test_after_a_death_the_next_request_starts_it_again():
    changes = []
    async with running_house() as house:
        house.host.on_change = lambda: changes.append(house.host.state("a").state.value)
        before = await use(house, "a")
        await before.die()
        await until(lambda: house.host.process("a") is None)
        assert await use(house, "a") is not before
        assert changes == ["loaded", "unloaded", "loaded"]


async def test_nobody_is_sent_to_a_dead_process_whose_children_have_not_ended_yet():
    async with running_house() as house:
        dead = await use(house, "a")
        dead.may_end.clear()
        await dead.die()
        await until(lambda: house.host.state("a").is_unwanted)
        waiting = asyncio.ensure_future(use(house, "a"))
        await until(lambda: waiting.done() or house.host.pool.n_waiting)
        dead.may_end.set()
        assert await waiting is not dead


async def test_pinned_models_and_those_for_the_start_are_loaded_at_once():
    models = [served("a", pinned=True), served("b", on_startup=True), served("c")]
    async with running_house(models=models, room=3) as house:
        house.host.start()
        await until(lambda: len(house.host.pool.awake()) == 2)
        assert {model.name for model in house.host.pool.awake()} == {"a", "b"}


async def test_a_pinned_model_that_dies_is_started_again_by_itself(monkeypatch):
    monkeypatch.setattr("lead.router.model_host._RETRY_SECONDS", 0.0)
    async with running_house(models=[served("a", pinned=True)]) as house:
        before = await use(house, "a")
        await before.die()
        await until(lambda: house.host.process("a") not in {None, before})


async def test_one_that_a_person_loads_stays_although_a_request_has_said_otherwise(house):
    before = await use(house, "a", keep_seconds=0.0)
    await before.ended
    house.host.preload("a")
    await until(lambda: house.host.process("a") and not house.host.state("a").n_running)
    assert house.host.state("a").idle_seconds == math.inf


@pytest.mark.parametrize("has_process", [False, True])
async def test_one_that_loads_for_ever_can_be_unloaded(house, has_process):
    make, house.make = house.make, lambda: endless(make())
    may_spawn = asyncio.Event()
    spawn = house.host._spawn

    async def spawn_when_told():
        await may_spawn.wait()
        return await spawn()

    house.host._spawn = spawn_when_told
    if has_process:
        may_spawn.set()
    waiting = asyncio.ensure_future(use(house, "a"))
    await until(lambda: house.processes if has_process else house.host.state("a").state is LOADING)
    house.make = make
    house.host.unload("a")
    may_spawn.set()
    assert await waiting is house.processes[-1]
    assert all(process.ended.done() for process in house.processes[:-1])


def endless(process):
    process.may_load.clear()
    return process


async def test_one_that_loads_for_ever_does_not_keep_others_from_being_loaded(house):
    make, house.make = house.make, lambda: endless(make())
    leaving = asyncio.ensure_future(use(house, "a"))
    await until(lambda: house.processes)
    house.make = make
    leaving.cancel()
    assert await use(house, "b") is house["b"]


class Commands:
    """Random commands of clients and people to a router, at any time."""

    def __init__(self, house, rng):
        self.house, self.rng = house, rng
        self.answered = 0

    async def give(self):
        host, name = self.house.host, self.rng.choice("abc")
        for _ in range(self.rng.randrange(40)):
            await asyncio.sleep(0)
        match self.rng.randrange(8):
            case 0:
                host.unload(name)
            case 1:
                host.preload(name)
            case 2:
                host.serve(served(each, aliases=self.rng.choice([(), ("x",)])) for each in "abc")
            case 3 if process := host.process(name):
                await process.die()
            case _:
                seconds = self.rng.choice([None, 0.0, 0.0, 300.0])
                async with asyncio.timeout(60), host.use(name, seconds):
                    await asyncio.sleep(0)
        self.answered += 1


@pytest.mark.parametrize("seed", range(3))
async def test_every_command_is_answered_in_any_order_with_models_that_are_not_to_stay(seed):
    async with running_house("abc", room=2, max_waiting=200) as house:
        commands = Commands(house, random.Random(seed))
        await asyncio.gather(*(commands.give() for _ in range(200)))
        assert commands.answered == 200
        house.host.pool.check_integrity()


async def test_a_model_that_is_to_be_served_no_more_answers_who_waits_and_then_nobody(house):
    async with house.host.use("a"):
        waiting = asyncio.ensure_future(use(house, "b"))
        await until(lambda: house.host.pool.n_waiting)
        house.host.serve([])
    process = await waiting
    house.host.serve([])
    await process.ended
    await until(lambda: house.host.state("b").state is ModelState.UNLOADED)
    house.host.serve([])
    with pytest.raises(UnavailableError, match="no longer served"):
        await use(house, "b")
    house.host.preload("b")


async def test_too_many_who_wait_are_refused():
    async with running_house(max_waiting=1) as house:
        async with house.host.use("a"):
            waiting = asyncio.ensure_future(use(house, "b"))
            await until(lambda: house.host.pool.n_waiting)
            with pytest.raises(QueueFullError):
                await use(house, "b")
        await waiting


async def test_at_the_end_nobody_waits():
    async with running_house() as house, house.host.use("a"):
        waiting = asyncio.ensure_future(use(house, "b"))
        await until(lambda: house.host.pool.n_waiting)
        house.host.refuse_all("the end")
        with pytest.raises(NotServingError, match="the end"):
            await waiting
        with pytest.raises(NotServingError):
            await use(house, "b")


async def test_other_models_can_be_served_from_now_on():
    async with running_house("ab", room=2) as house:
        process = await use(house, "a")
        house.host.serve([served("b"), served("c")])
        await until(process.ended.done)
        assert await use(house, "c") is house["c"]
        await until(lambda: house.host.state("a").state is ModelState.UNLOADED)
        house.host.serve([served("b"), served("c")])
        assert set(house.host.models) == {"b", "c"}


async def test_a_model_with_other_options_is_measured_and_loaded_anew():
    async with running_house("a") as house:
        before = await use(house, "a")
        house.host.serve([served("a", aliases=("x",))])
        await until(before.ended.done)
        assert await use(house, "a") is not before
        assert len(house.measured) == 2


@pytest.mark.parametrize("n_measured", [1, 2])
async def test_what_is_measured_of_a_model_that_has_changed_meanwhile_does_not_count(n_measured, caplog):
    async with running_house("a") as house:
        measure, may_go_on = house.host._measure_need, asyncio.Event()

        async def measure_late(*arguments):
            need = await measure(*arguments)
            await may_go_on.wait()
            return need

        house.host._measure_need = measure_late
        waiting = asyncio.ensure_future(use(house, "a"))
        await until(lambda: house.measured)
        house.host.serve([served("a", aliases=("x",))])
        if n_measured == 1:  # nobody waits for it any more, and it is removed
            waiting.cancel()
            await asyncio.wait([waiting])
            house.host.serve([])
        may_go_on.set()
        await asyncio.wait([waiting])
    assert len(house.measured) == n_measured
    assert not caplog.records


async def test_a_process_is_prepared_for_the_next_model():
    house = House(room=2)
    house.host._prepares = True
    try:
        house.host.start()
        await until(lambda: len(house.processes) == 1)
        assert await use(house, "a") is house.processes[0]
        await until(lambda: len(house.processes) == 2)
        assert await use(house, "b") is house.processes[1]
    finally:
        await house.host.stop()
    assert all(process.ended.done() for process in house.processes)
