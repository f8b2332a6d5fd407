"""What one start has measured, as the next one finds it."""

import os

import pytest
from pydantic import BaseModel

from shared.llama.remembered import Remembered


class Found(BaseModel):
    n: int


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return path


def stored(model, *facts):
    return Remembered("found", Found, model, *facts)


def test_what_was_kept_is_found_by_a_start_with_the_same_facts(model):
    assert stored(model, 1).recall() is None
    stored(model, 1).keep(Found(n=7))
    assert stored(model, 1).recall() == Found(n=7)
    assert stored(model, 2).recall() is None


def test_what_is_too_old_is_not_found(model):
    stored(model).keep(Found(n=7))
    os.utime(stored(model).path, (0, 0))
    assert stored(model).recall(max_age=60.0) is None
    assert stored(model).recall() == Found(n=7)


def test_nothing_is_known_of_a_file_that_has_changed(model):
    stored(model).keep(Found(n=7))
    model.write_bytes(b"GGUF2")
    assert stored(model).recall() is None


@pytest.mark.parametrize("name", ["library.build", "cpus.kind", "devices.descriptions"])
def test_nor_with_another_build_cpu_or_device(model, monkeypatch, name):
    stored(model).keep(Found(n=7))
    monkeypatch.setattr(f"shared.llama.remembered.{name}", lambda: ["another one"])
    assert stored(model).recall() is None


def test_a_damaged_file_is_as_none(model):
    stored(model).keep(Found(n=7))
    stored(model).path.write_text("{")
    assert stored(model).recall() is None


def test_where_nothing_can_be_written_nothing_is_found(model):
    folder = stored(model).path.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("no folder")
    stored(model).keep(Found(n=7))
    assert stored(model).recall() is None


def test_few_files_are_kept(model, monkeypatch):
    monkeypatch.setattr("shared.llama.remembered._N_FILES", 2)
    for n in range(3):
        stored(model, n).keep(Found(n=n))
    assert len(list(stored(model).path.parent.iterdir())) == 2
    assert stored(model, 2).recall() == Found(n=2)
