import errno
import shutil

import pytest

from lead.router.unusable_files import UnusableFiles
from shared.model_files.builtin import builtin_draft


@pytest.fixture
def half(tmp_path):
    whole = builtin_draft().read_bytes()
    path = tmp_path / "half.gguf"
    path.write_bytes(whole[: len(whole) // 2])
    return path


@pytest.fixture
async def files(half):
    found = UnusableFiles()
    await found.note(half, "it is incomplete")
    return found


async def test_a_damaged_file_is_remembered(files, half):
    assert await files.reason(half) == "it is incomplete"


def complete(path):
    shutil.copy(builtin_draft(), path)


def replace_by_another_of_its_size(path):
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    copy.replace(path)


def remove(path):
    path.unlink()


def allow(path):
    path.chmod(0o640)


@pytest.mark.parametrize("change", [complete, replace_by_another_of_its_size, remove, allow])
async def test_a_file_that_has_changed_may_be_tried_again(files, half, change):
    change(half)
    assert await files.reason(half) is None


async def test_a_model_that_failed_for_another_reason_may_be_tried_again(files):
    await files.note(builtin_draft(), "not enough memory")
    assert await files.reason(builtin_draft()) is None


async def test_a_file_that_cannot_be_opened_is_not_damaged(half, monkeypatch):
    def fail(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    files = UnusableFiles()
    monkeypatch.setattr("pathlib.Path.open", fail)
    await files.note(half, "it cannot be read (Too many open files)")
    assert not files.has(half)


async def test_a_model_that_is_not_on_this_machine_has_no_file(files):
    await files.note(None, "no such repository")
    assert await files.reason(None) is None
