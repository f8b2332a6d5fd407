from itertools import islice, pairwise

import pytest

from bench.faults.schedule import KINDS, chosen_kinds, faults
from shared.errors import ConfigError

ALL = list(KINDS)


def first(n, seed=1, kinds=ALL, pace=1.0):
    return list(islice(faults(seed, kinds, pace), n))


def test_the_same_seed_gives_the_same_faults():
    assert first(200) == first(200)
    assert first(200) != first(200, seed=2)


def test_faults_begin_one_after_the_other():
    times = [fault.begins for fault in first(200)]
    assert times == sorted(times)


def test_faults_of_one_track_do_not_overlap():
    for track in {nature.track for nature in KINDS.values()}:
        own = [fault for fault in first(400) if fault.track == track]
        assert all(a.begins + a.seconds < b.begins for a, b in pairwise(own))


def test_every_kind_comes():
    assert {fault.kind for fault in first(400)} == set(ALL)


def test_the_engine_is_left_alone_for_5_to_15_seconds():
    killed = first(100, kinds=["engine-killed"])
    pauses = [b.begins - a.begins for a, b in pairwise(killed)]
    assert min(pauses) >= 5
    assert max(pauses) <= 15


def test_faults_of_one_part_do_not_depend_on_which_others_are_chosen():
    engine = [kind for kind in ALL if kind.startswith("engine")]
    alone = first(20, kinds=engine)
    assert [fault for fault in first(400) if fault.track == "engine"][:20] == alone


def test_a_pace_makes_pauses_shorter():
    assert first(1, kinds=["link-cut"], pace=2)[0].begins == first(1, kinds=["link-cut"])[0].begins / 2


def test_without_kinds_nothing_happens():
    assert first(5, kinds=[]) == []


def test_kinds_are_chosen_by_name_or_by_their_first_word():
    assert chosen_kinds("link-cut,engine") == [
        "link-cut",
        "engine-killed",
        "engine-killed-twice",
        "engine-stopped",
        "engine-out-of-memory",
    ]
    assert chosen_kinds("all") == ALL
    assert chosen_kinds("none") == []


def test_a_kind_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="link-cut"):
        chosen_kinds("meteorite")
