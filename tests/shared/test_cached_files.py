import os
import time

import pytest

from shared.cached_files import (
    ABANDONED_SECONDS,
    hold_folder,
    is_held,
    make_cache_folder,
    remove_abandoned,
    remove_oldest,
    written_whole,
)
from shared.errors import ConfigError


def age(path, seconds):
    path.touch()
    os.utime(path, (time.time() - seconds,) * 2)


def fail(part):
    part.write_text("new")
    raise OSError("disk full")


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "model.gguf"
    with written_whole(path) as part:
        part.write_text("half")
        assert not path.exists()
    assert path.read_text() == "half"
    assert list(tmp_path.iterdir()) == [path]


def test_after_an_error_the_file_is_as_before(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_text("old")
    with pytest.raises(OSError, match="disk"), written_whole(path) as part:
        fail(part)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot make the cache folder"):
        make_cache_folder(tmp_path / "file")


def test_the_newest_files_stay(tmp_path):
    for seconds in range(5):
        age(tmp_path / str(seconds), seconds)
    remove_oldest(tmp_path, 2)
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1"}
    remove_oldest(tmp_path / "missing", 2)


def test_what_a_killed_process_left_is_removed_and_what_runs_stays(tmp_path):
    age(tmp_path / "a.old.part", 2 * ABANDONED_SECONDS)
    age(tmp_path / "b.old.part", 2 * ABANDONED_SECONDS)
    age(tmp_path / "a.new.part", 0)
    remove_abandoned(tmp_path, "a*")
    assert {path.name for path in tmp_path.iterdir()} == {"b.old.part", "a.new.part"}


def test_a_folder_is_held_until_the_last_that_holds_it_lets_go(tmp_path):
    assert not is_held(tmp_path)
    first, second = hold_folder(tmp_path), hold_folder(tmp_path)
    first.close()
    assert is_held(tmp_path)
    del second
    assert not is_held(tmp_path)


def test_a_folder_that_does_not_exist_is_not_held(tmp_path):
    assert hold_folder(tmp_path / "missing") is None
    assert not is_held(tmp_path / "missing")
