"""The measurements of one start, as the next start finds them."""

import os

from pydantic import BaseModel

from shared.llama.remembered import Remembered


class Found(BaseModel):
    n: int


def stored(key="key"):
    return Remembered("found", Found, key)


def test_what_was_kept_is_found_by_a_start_with_the_same_key():
    assert stored().recall() is None
    stored().keep(Found(n=7))
    assert stored().recall() == Found(n=7)
    assert stored("another").recall() is None


def test_what_is_too_old_is_not_found():
    stored().keep(Found(n=7))
    os.utime(stored().path, (0, 0))
    assert stored().recall(max_age=60.0) is None
    assert stored().recall() == Found(n=7)


def test_a_damaged_file_is_as_none():
    stored().keep(Found(n=7))
    stored().path.write_text("{")
    assert stored().recall() is None


def test_where_nothing_can_be_written_nothing_is_found():
    folder = stored().path.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("no folder")
    stored().keep(Found(n=7))
    assert stored().recall() is None


def test_few_files_are_kept(monkeypatch):
    monkeypatch.setattr("shared.llama.remembered._N_FILES", 2)
    for n in range(3):
        stored(str(n)).keep(Found(n=n))
    assert len(list(stored().path.parent.iterdir())) == 2
    assert stored("2").recall() == Found(n=2)
