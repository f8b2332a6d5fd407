import os

import pytest

from shared.descriptors import SpareDescriptors, limit, n_open
from tests.python_runs import run_python


def raised_in_a_process(*limits):
    """The result of `raise_limit` in a process with these limits, and the limits of `getrlimit` after it."""
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, {limits}); "
        "from shared.descriptors import raise_limit; "
        "print(raise_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    return tuple(map(int, run_python("-c", code, check=True).stdout.split()))


@pytest.mark.parametrize(("limits", "raised_to"), [((100, 300), 300), ((200, 200), 200)])
def test_the_limit_is_raised_to_what_the_system_permits(limits, raised_to):
    assert raised_in_a_process(*limits) == (raised_to,) * 3


def test_open_ones_are_counted():
    before = n_open()
    reading, writing = os.pipe()
    assert n_open() == before + 2
    os.close(reading)
    os.close(writing)
    assert n_open() == before


def test_when_none_is_left_to_count_with_all_are_open(all_in_use):
    all_in_use()
    assert n_open() == limit()


def test_spare_ones_can_be_used_when_all_others_are_in_use(all_in_use):
    spare = SpareDescriptors(2)
    all_in_use()
    with pytest.raises(OSError, match="Too many open files"):
        os.pipe()
    with spare.released():
        reading, writing = os.pipe()
        os.close(reading)
        os.close(writing)
    with pytest.raises(OSError, match="Too many open files"):
        os.pipe()
    spare.close()


def test_as_many_are_held_again_as_there_are(all_in_use):
    spare = SpareDescriptors(3)
    all_in_use()
    with spare.released():
        kept = os.open(os.devnull, os.O_RDONLY)
    os.close(kept)
    with spare.released():
        taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
    for each in taken:
        os.close(each)
    with spare.released():
        three = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    for each in three:
        os.close(each)
    spare.close()
