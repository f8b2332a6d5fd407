"""What a process may still take, from the files of its control groups."""

from types import SimpleNamespace

import psutil
import pytest

from shared.free_memory import free_memory

AVAILABLE = 50_000
V2 = ("memory.max", "memory.current", "file")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache")


@pytest.fixture(autouse=True)
def _machine(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=AVAILABLE))


class Groups:
    def __init__(self, path):
        self.root, self._own = path / "cgroup", path / "own"

    def limit(self, folder, most, n_used=0, cache=0, names=V2):
        group = self.root / folder
        group.mkdir(parents=True, exist_ok=True)
        for name, value in zip(names, (most, n_used, None), strict=True):
            if value is not None:
                (group / name).write_text(f"{value}\n")
        (group / "memory.stat").write_text(f"anon 1\n{names[2]} {cache}\n")

    def free(self, own):
        self._own.write_text(own)
        return free_memory(self.root, self._own)


@pytest.fixture
def groups(tmp_path):
    return Groups(tmp_path)


def test_without_control_groups_it_is_what_the_machine_has(tmp_path):
    assert free_memory(tmp_path, tmp_path / "missing") == AVAILABLE


def test_a_container_has_what_its_limit_leaves(groups):
    groups.limit("", 4000, n_used=1500)
    assert groups.free("0::/\n") == 2500


def test_cached_files_give_way(groups):
    groups.limit("", 4000, n_used=3500, cache=3000)
    assert groups.free("0::/\n") == 3500


def test_the_narrowest_group_counts(groups):
    groups.limit("a", 3000)
    groups.limit("a/b", 4000)
    assert groups.free("0::/a/b\n") == 3000


def test_a_group_that_is_not_visible_is_that_at_the_root(groups):
    groups.limit("", 4000)
    assert groups.free("0::/docker/3f2a\n") == 4000


def test_without_a_limit_it_is_what_the_machine_has(groups):
    groups.limit("", "max")
    assert groups.free("0::/\n") == AVAILABLE


def test_the_machine_may_have_less_than_the_limit(groups):
    groups.limit("", 1 << 40)
    assert groups.free("0::/\n") == AVAILABLE


def test_nothing_is_left_above_the_limit(groups):
    groups.limit("", 4000, n_used=5000)
    assert groups.free("0::/\n") == 0


@pytest.mark.parametrize("own", ["4:memory:/docker/3f2a\n", "9:cpu,memory:/docker/3f2a\n0::/\n"])
def test_the_first_version_of_groups(groups, own):
    groups.limit("memory", 4000, n_used=1500, cache=500, names=V1)
    assert groups.free(own) == 3000
