"""The memory that a process may still take, from the files of its control groups."""

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

    def limit(self, folder, maximum, n_used=0, cache=0, names=V2):
        group = self.root / folder
        group.mkdir(parents=True, exist_ok=True)
        for name, value in zip(names, (maximum, n_used, None), strict=True):
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


LIMITS = {
    "what the limit leaves": ({"": (4000, 1500)}, "/", 2500),
    "cached files give way": ({"": (4000, 3500, 3000)}, "/", 3500),
    "the narrowest group counts": ({"a": (3000,), "a/b": (4000,)}, "/a/b", 3000),
    "a group that is not visible is that at the root": ({"": (4000,)}, "/docker/3f2a", 4000),
    "no limit": ({"": ("max",)}, "/", AVAILABLE),
    "the machine has less than the limit": ({"": (1 << 40,)}, "/", AVAILABLE),
    "nothing is left above the limit": ({"": (4000, 5000)}, "/", 0),
}


@pytest.mark.parametrize(("limits", "own", "free"), LIMITS.values(), ids=LIMITS)
def test_a_container_has_what_its_groups_leave(groups, limits, own, free):
    for folder, limit in limits.items():
        groups.limit(folder, *limit)
    assert groups.free(f"0::{own}\n") == free


@pytest.mark.parametrize("own", ["4:memory:/docker/3f2a\n", "9:cpu,memory:/docker/3f2a\n0::/\n"])
def test_the_first_version_of_groups(groups, own):
    groups.limit("memory", 4000, n_used=1500, cache=500, names=V1)
    assert groups.free(own) == 3000
