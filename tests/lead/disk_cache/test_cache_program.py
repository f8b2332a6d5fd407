import pytest

from lead.disk_cache import cache_program
from shared.cached_files import CacheFolder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_program, "user_cache_path", lambda _: tmp_path / "cache")
    monkeypatch.setattr(cache_program, "user_state_path", lambda _: tmp_path / "state")
    monkeypatch.setattr(cache_program, "user_data_path", lambda _: tmp_path / "data")
    return tmp_path / "cache"


def fill(folder):
    (folder / "converted" / "digest").mkdir(parents=True)
    (folder / "converted" / "digest" / "stories.gguf").write_bytes(bytes(3_000_000))
    (folder / "target-1.gguf").write_bytes(bytes(2_000_000))


def test_it_lists_what_is_there_with_its_size(folder, capsys):
    fill(folder)
    cache_program.main([])
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f"{folder}: 5 MB"
    assert [line.split()[0] for line in lines[:2]] == ["*.gguf", "converted"]
    assert lines[0].endswith(" 2 MB")
    assert lines[1].endswith(" 3 MB")


@pytest.mark.usefixtures("folder")
def test_it_names_what_it_does_not_delete(tmp_path, capsys):
    (tmp_path / "state").mkdir()
    cache_program.main(["list"])
    assert f"{tmp_path}/state: the input history of chat" in capsys.readouterr().out


def test_clear_deletes_all_of_it_and_may_be_repeated(folder, capsys):
    fill(folder)
    cache_program.main(["clear"])
    assert not folder.exists()
    assert capsys.readouterr().out == f"{folder} is deleted, 5 MB\n"
    cache_program.main(["clear"])
    assert "does not exist" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_what_cannot_be_deleted_is_named(monkeypatch):
    def refuse(_):
        raise PermissionError(13, "Permission denied", "/cache/x")

    monkeypatch.setattr(cache_program.shutil, "rmtree", refuse)
    with pytest.raises(SystemExit, match="cannot delete /cache/x: Permission denied"):
        cache_program.main(["clear"])


def test_each_folder_of_the_cache_is_explained():
    assert set(CacheFolder) == cache_program._CONTENTS.keys()
