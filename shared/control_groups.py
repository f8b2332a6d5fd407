"""The Linux control groups of this process, which limit it in a container or a service.

Versions 1 and 2; see the kernel's cgroup-v2.rst and cgroup-v1/.
"""

from collections.abc import Iterator
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def own_groups(controller: str, groups: Path = GROUPS, own: Path = OWN) -> Iterator[tuple[Path, bool]]:
    """Yield the folders of groups that may limit `controller`, and whether each is of version 2.

    Yields a group, then its ancestors. A container may see its own group as the root, whatever path `own`
    names.
    """
    try:
        lines = own.read_text(errors="surrogateescape").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = groups / controller if controllers else groups
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            yield folder, not controllers
            if folder == root:
                break
