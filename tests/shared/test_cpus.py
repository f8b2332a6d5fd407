import ctypes
import os
import platform

import pytest

from shared import cpus
from shared.control_groups import own_groups
from shared.errors import ConfigError


@pytest.fixture(autouse=True)
def _without_limit(monkeypatch):
    """Hide the limits of a container in which these tests may run."""
    monkeypatch.setattr(cpus, "own_groups", lambda *_: iter(()))


@pytest.mark.parametrize(
    ("text", "expected"), [("0", {0}), ("0-3,8", {0, 1, 2, 3, 8}), (" 1 , 2-2 ", {1, 2}), ("3,3", {3})]
)
def test_ranges_are_read_as_taskset_does(text, expected):
    assert cpus.parse_cpus(text) == expected


@pytest.mark.parametrize(("cores", "text"), [([0], "0"), ([3, 1, 2], "1-3"), ([0, 2, 3, 7], "0,2-3,7")])
def test_cores_are_written_as_options_take_them(cores, text):
    assert cpus.as_ranges(cores) == text


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1,,2", "0-99999999"])
def test_anything_else_is_refused_with_a_sentence(text):
    with pytest.raises(ConfigError, match="is not a list of cores"):
        cpus.parse_cpus(text)


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


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Makes a Linux machine with these usable cores; returns the folder of its CPU topology."""

    def make(n_cores, usable=None, performance=None):
        monkeypatch.setattr(platform, "system", lambda: "Linux")
        monkeypatch.setattr(cpus, "_TOPOLOGY", tmp_path)
        monkeypatch.setattr(cpus, "_INTEL_PERFORMANCE_CORES", tmp_path / "performance")
        monkeypatch.setattr(cpus, "usable", lambda: frozenset(usable or range(n_cores)))
        if performance:
            (tmp_path / "performance").write_text(f"{performance}\n")
        for cpu in range(n_cores):
            (tmp_path / f"cpu{cpu}" / "topology").mkdir(parents=True)
        return tmp_path

    return make


def pair_threads(folder, pairs):
    for pair in pairs:
        for cpu in pair:
            (folder / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text(",".join(map(str, pair)))


def test_the_second_thread_of_a_core_does_not_count(machine):
    pair_threads(machine(4), [(0, 2), (1, 3)])
    assert (cpus.n_physical(), cpus.one_of_each_core()) == (2, [0, 1])


def test_without_topology_every_core_counts(machine):
    machine(3)
    assert cpus.n_physical() == 3


def test_efficiency_cores_of_intel_do_not_count(machine):
    pair_threads(machine(8, performance="0-3"), [(0, 1), (2, 3)])
    assert cpus.n_physical() == 2


def test_a_program_on_efficiency_cores_alone_has_these(machine):
    machine(8, usable={4, 5, 6}, performance="0-3")
    assert cpus.n_physical() == 3


@pytest.mark.parametrize(
    ("capacities", "n"),
    [
        ([1024, 1024, 1024, 1024], 4),
        ([446, 446, 446, 446, 1024, 1024], 2),
        ([250, 250, 870, 870, 870, 1024], 4),  # a prime core is not much faster than a big one
    ],
)
def test_arm_cores_of_less_than_half_the_capacity_do_not_count(machine, capacities, n):
    folder = machine(len(capacities))
    for cpu, capacity in enumerate(capacities):
        (folder / f"cpu{cpu}" / "cpu_capacity").write_text(f"{capacity}\n")
    assert cpus.n_physical() == n


class Darwin:
    """The C library of a Mac, with the functions that are called."""

    def __init__(self, known):
        self._known = known

    def sysctlbyname(self, name, value, size, new, n_new):
        assert size._obj.value == ctypes.sizeof(value._obj)
        assert (new, n_new.value) == (None, 0)
        if name.decode() not in self._known:
            return -1
        value._obj.value = self._known[name.decode()]
        return 0


@pytest.mark.parametrize(
    ("known", "n"),
    [
        ({"hw.perflevel0.physicalcpu": 6, "hw.perflevel1.physicalcpu": 2, "hw.physicalcpu": 8}, 6),
        ({"hw.physicalcpu": 4}, 4),  # a Mac with an Intel CPU
        ({}, 12),
    ],
)
def test_on_a_mac_its_performance_cores_count(monkeypatch, known, n):
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Darwin(known))
    monkeypatch.setattr(cpus, "usable", lambda: frozenset(range(12)))
    assert cpus.n_physical() == n


def test_the_kind_of_the_cores_is_that_of_the_first(monkeypatch, tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: A\ncpu MHz\t: 1.0\nflags\t: fma\n\nprocessor\t: 1\n")
    monkeypatch.setattr(cpus, "_CPUINFO", file)
    assert cpus.kind() == "model name\t: A\nflags\t: fma"


def test_where_linux_does_not_tell_the_kind_is_what_python_knows(monkeypatch, tmp_path):
    monkeypatch.setattr(cpus, "_CPUINFO", tmp_path / "none")
    assert platform.machine() in cpus.kind()


QUOTAS = {
    "no limit": ("0::/\n", {"cpu.max": "max 100000\n"}, 8),
    "cores and a half": ("0::/\n", {"cpu.max": "250000 100000\n"}, 2),
    "less than a core": ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
    "more than there are": ("0::/\n", {"cpu.max": "6400000 100000\n"}, 8),
    "the narrowest group counts": (
        "0::/a\n",
        {"cpu.max": "400000 100000\n", "a/cpu.max": "300000 100000"},
        3,
    ),
    "the first version": (
        "3:memory:/\n4:cpuacct,cpu:/a\n",
        {"cpu/a/cpu.cfs_quota_us": "300000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
        3,
    ),
    "the first version, no limit": (
        "4:cpu:/\n",
        {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
        8,
    ),
    "no groups": ("", {}, 8),
}


@pytest.mark.parametrize(("own", "files", "n"), QUOTAS.values(), ids=QUOTAS)
def test_a_container_has_as_many_as_its_groups_allow(monkeypatch, tmp_path, own, files, n):
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(cpus, "_fast", lambda _: frozenset(range(8)))
    monkeypatch.setattr(cpus, "_siblings", str)
    monkeypatch.setattr(
        cpus, "own_groups", lambda name: own_groups(name, tmp_path / "groups", tmp_path / "own")
    )
    assert cpus.n_physical() == n
