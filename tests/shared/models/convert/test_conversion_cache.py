"""Each source is converted once, and again after it has changed."""

import os
import shutil
import time

import pytest

from shared.errors import ConfigError
from shared.models.convert import read_conversion
from shared.models.convert.conversion_cache import converted
from tests.shared.models.convert.conftest import small_llama
from tests.shared.models.convert.llama2c_reference import version_0


def refuse(_n_done, _n_total):
    raise AssertionError("converted again")


def test_the_converted_model_has_its_own_name(checkpoint, cache):
    path = converted(read_conversion(checkpoint))
    assert path.name == "stories.gguf"
    assert path.is_relative_to(cache)


def test_a_source_is_converted_once(checkpoint):
    path = converted(read_conversion(checkpoint))
    assert converted(read_conversion(checkpoint), refuse) == path


@pytest.mark.parametrize("which", ["checkpoint", "tokenizer"])
def test_a_changed_source_is_converted_anew(checkpoint, tokenizer, which):
    before = converted(read_conversion(checkpoint))
    changed = {"checkpoint": checkpoint, "tokenizer": tokenizer}[which]
    state = changed.stat()
    os.utime(changed, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    after = converted(read_conversion(checkpoint))
    assert after.is_file()
    assert not before.exists()


def test_new_weights_of_another_size_are_converted(checkpoint):
    before = converted(read_conversion(checkpoint)).stat().st_size
    checkpoint.write_bytes(version_0(small_llama(n_layers=3)))
    assert converted(read_conversion(checkpoint)).stat().st_size > before


def test_other_sources_keep_theirs(checkpoint, gpt2_folder):
    first, second = (converted(read_conversion(source)) for source in (checkpoint, gpt2_folder))
    assert first.is_file()
    assert second.name == "gpt2.gguf"


def test_a_copy_with_the_same_name_is_another_source(checkpoint, tokenizer, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in (checkpoint, tokenizer):
        shutil.copy2(path, folder)
    copy = converted(read_conversion(folder / checkpoint.name))
    assert copy != converted(read_conversion(checkpoint))


def test_what_a_killed_process_left_is_removed_after_an_hour(checkpoint):
    path = converted(read_conversion(checkpoint))
    old, new = (path.with_name(f"{path.name}.{name}.part") for name in ("old", "new"))
    for part in (old, new):
        part.touch()
    os.utime(old, (0, time.time() - 4000))
    path.unlink()
    converted(read_conversion(checkpoint))
    assert (old.exists(), new.exists()) == (False, True)


def test_a_cache_that_cannot_be_made_is_an_error(checkpoint, cache):
    cache.parent.mkdir()
    cache.touch()
    with pytest.raises(ConfigError, match="cannot make the cache folder"):
        converted(read_conversion(checkpoint))
