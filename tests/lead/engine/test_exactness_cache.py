"""What an earlier start has measured serves a start like it, and no other."""

import os
import shutil

import pytest

from lead.engine import exactness_cache
from lead.engine.commands import Load
from lead.engine.events import Exactness
from shared import cpus
from shared.llama import library
from shared.llama.batch_invariance import InvariantWidths
from shared.models.builtin import builtin_target
from shared.settings.model_options import ModelOptions

FOUND = Exactness(widths=InvariantWidths((2, 4), (8, 16), (64,), joins=False), cost=1.25)


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.setattr(exactness_cache, "user_cache_path", lambda _name: tmp_path / "cache")


@pytest.fixture
def load(tmp_path):
    path = tmp_path / "target.gguf"
    shutil.copy(builtin_target(), path)
    return Load(model=path, options=ModelOptions(threads=1, exact="on"), depth=4)


def recalled(load, *, with_heads=False):
    return exactness_cache.recall(load, with_heads=with_heads)


def test_a_start_like_it_finds_all_of_it(load):
    assert recalled(load) is None
    exactness_cache.remember(load, FOUND, with_heads=False)
    assert recalled(load) == FOUND
    assert recalled(load.model_copy(update={"depth": 1, "ngram": False})) == FOUND
    richer = load.options.model_copy(update={"cache_ram": 5})
    assert recalled(load.model_copy(update={"options": richer})) == FOUND


@pytest.mark.parametrize("option", [{"threads": 2}, {"exact": "auto"}, {"repack": False}, {"ctx_size": 999}])
def test_other_options_are_measured_again(load, option):
    exactness_cache.remember(load, FOUND, with_heads=False)
    assert recalled(load.model_copy(update={"options": load.options.model_copy(update=option)})) is None
    assert recalled(load, with_heads=True) is None


def test_so_is_a_file_that_has_changed(load):
    exactness_cache.remember(load, FOUND, with_heads=False)
    os.utime(load.model, ns=(1, 1))
    assert recalled(load) is None


@pytest.mark.parametrize(("module", "fact"), [(library, "build"), (cpus, "kind")])
def test_so_is_another_build_or_cpu(load, monkeypatch, module, fact):
    exactness_cache.remember(load, FOUND, with_heads=False)
    monkeypatch.setattr(module, fact, lambda: "another")
    assert recalled(load) is None


def test_a_damaged_file_is_measured_again(load, tmp_path):
    exactness_cache.remember(load, FOUND, with_heads=False)
    (file,) = (tmp_path / "cache" / "exactness").iterdir()
    file.write_text('{"widths":')
    assert recalled(load) is None


def test_a_folder_that_cannot_be_written_is_no_error(load, tmp_path):
    (tmp_path / "cache").write_text("a file")
    exactness_cache.remember(load, FOUND, with_heads=False)
    assert recalled(load) is None
