import os

import pytest

from shared import cpus
from shared.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"), [("0", {0}), ("0-3,8", {0, 1, 2, 3, 8}), (" 1 , 2-2 ", {1, 2}), ("3,3", {3})]
)
def test_ranges_are_read_as_taskset_does(text, expected):
    assert cpus.parse_cpus(text) == expected


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1,,2", "0-99999999"])
def test_anything_else_is_refused_with_a_sentence(text):
    with pytest.raises(ConfigError, match="is not a list of cores"):
        cpus.parse_cpus(text)


def test_cores_that_are_not_there_are_named():
    with pytest.raises(ConfigError, match="60000"):
        cpus.pin(frozenset({60_000}))


def test_pinning_keeps_the_process_on_those_cores():
    before = os.sched_getaffinity(0)
    try:
        cpus.pin(frozenset({min(before)}))
        assert cpus.usable() == {min(before)}
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_process_that_was_started_on_one_core_may_use_another():
    before = os.sched_getaffinity(0)
    one, other = sorted(before)[:2]
    try:
        os.sched_setaffinity(0, {one})
        cpus.pin(frozenset({other}))
        assert cpus.usable() == {other}
    finally:
        os.sched_setaffinity(0, before)


def test_a_pinning_that_fails_changes_nothing():
    before = os.sched_getaffinity(0)
    with pytest.raises(ConfigError, match=r"\[60000\]"):
        cpus.pin(frozenset({min(before), 60_000}))
    assert os.sched_getaffinity(0) == before


def test_there_is_at_least_one_physical_core_and_no_more_than_logical_ones():
    assert 1 <= cpus.n_physical() <= len(cpus.usable())


def test_the_second_thread_of_a_core_does_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr(cpus, "_TOPOLOGY", tmp_path)
    monkeypatch.setattr(cpus, "usable", lambda: frozenset(range(4)))
    for cpu in range(4):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text("0,2" if cpu % 2 == 0 else "1,3")
    assert cpus.n_physical() == 2
