"""The files of texts on disk: a changed file is not believed, and the limit of their size is kept."""

import contextlib
import json
import os
import re
import time
from types import SimpleNamespace

import pytest

from lead.disk_cache.text_files import (
    DamagedTextError,
    TextFiles,
    new_name,
    read_manifest,
    read_named,
    text_hash,
    write_named,
)
from shared.cache_edits import Snapshot
from shared.slot_cache import SavedText

KEY = "0123456789abcdef01234567"
OTHER_KEY = KEY[::-1]
CONTENT = bytes(range(256)) * 5000
"""More than one chunk."""


def no_pace(_n_bytes):
    pass


@pytest.fixture
def files(tmp_path):
    return TextFiles(tmp_path, KEY, 1 << 30)


def written(files, content=CONTENT, name=None, end=10, known=(), *, pace=no_pace):
    start = known[-1].end if known else 0
    pieces = [(part.snapshot(0), part) for part in known]
    piece = (Snapshot("text", 1, end, start), memoryview(content))
    text = SavedText(name=name or new_name(), owner="me", tokens=list(range(end)), n_prefill=3, parts=())
    return files.write(text, [*pieces, piece], pace)


def contents_of(files, text):
    into = [(part.snapshot(0), memoryview(bytearray(part.size))) for part in text.parts]
    files.read(text, into)
    return [bytes(view) for _, view in into]


def age(path, seconds):
    os.utime(path, (time.time() - seconds,) * 2)


def all_files(folder):
    return {path for path in folder.rglob("*") if path.is_file()}


def test_what_was_written_is_read_by_the_next_process(files, tmp_path):
    saved = written(files)
    again = TextFiles(tmp_path, KEY, 1 << 30)
    assert again.look().texts == [saved]
    assert contents_of(again, saved) == [CONTENT]


def test_what_is_new_of_a_text_is_written_beside_what_is_there(files):
    first = written(files)
    before = {path: path.stat().st_mtime_ns for path in files.folder.glob("*.kv")}
    second = written(files, content=b"more", name=first.name, end=20, known=first.parts)
    assert contents_of(files, second) == [CONTENT, b"more"]
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_text_that_was_written_anew_leaves_nothing_behind(files):
    first = written(files)
    second = written(files, content=b"whole", name=first.name, end=20)
    assert {path.name for path in files.folder.glob("*.kv")} == {second.parts[0].file}
    assert len(files.look().texts) == 0, "what this process has written is nothing new"


def test_what_others_write_meanwhile_is_new(files, tmp_path):
    other = TextFiles(tmp_path, KEY, 1 << 30)
    assert other.look().texts == []
    saved = written(files)
    assert other.look().texts == [saved]
    assert other.look().texts == []
    longer = written(files, content=b"more", name=saved.name, end=20, known=saved.parts)
    assert other.look().texts == [longer]


def test_whoever_has_deleted_a_text_it_is_said_once_that_it_is_gone(tmp_path):
    files = TextFiles(tmp_path, KEY, 2 * len(CONTENT))
    first = written(files)
    age(files.folder / f"{first.name}.text", 50)
    second = written(files)
    assert files.look().gone == {first.name}, "there was no room for it"
    TextFiles(tmp_path, KEY, 1).delete(second.name)
    assert files.look() == ([], {second.name})
    assert not files._seen
    again = written(files, name=first.name)
    assert TextFiles(tmp_path, KEY, 1).look() == ([again], set())


def test_what_leaves_the_folder_the_same_date_is_seen_nevertheless(files, tmp_path, monkeypatch):
    first, looking = written(files), TextFiles(tmp_path, KEY, 1 << 30)
    date = files.folder.stat().st_mtime_ns
    late = []

    def write(_seconds):
        late.append(written(files))
        os.utime(files.folder, ns=(date, date))

    monkeypatch.setattr(
        "lead.disk_cache.text_files.time", SimpleNamespace(time=lambda: date / 1e9, sleep=write)
    )
    assert looking.look().texts == [first, *late]
    assert len(late) == 1


def test_a_look_that_fails_loses_nothing(files, tmp_path, monkeypatch):
    saved = written(files)
    again = TextFiles(tmp_path, KEY, 1 << 30)
    with monkeypatch.context() as patch:
        patch.delattr(TextFiles, "_manifests")
        with pytest.raises(AttributeError):
            again.look()
    assert again.look().texts == [saved]


def test_while_a_text_is_written_it_is_no_news(files):
    """Another thread looks for news."""
    news = []
    seen = files._seen

    class Seen(dict):
        def __setitem__(self, name, used_at):
            news.append(files.look())
            super().__setitem__(name, used_at)

    files._seen = Seen(seen)
    written(files)
    assert news == [([], set())]
    assert files.look() == ([], set())


def test_of_another_model_nothing_is_read(files, tmp_path):
    written(files)
    assert TextFiles(tmp_path, OTHER_KEY, 1 << 30).look().texts == []


def test_files_and_folders_are_private(files):
    written(files)
    assert {path.stat().st_mode & 0o777 for path in all_files(files.folder)} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (files.folder, files.folder.parent)} == {0o700}


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path):
    path.write_bytes(path.read_bytes() + b"x")


def empty(path):
    path.write_bytes(b"")


DAMAGES = [flip, cut, lengthen, empty]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_part_is_not_believed(files, damage):
    saved = written(files)
    damage(files.folder / saved.parts[0].file)
    with pytest.raises(DamagedTextError):
        contents_of(files, saved)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_manifest_is_logged_once_and_deleted_with_its_parts(files, tmp_path, caplog, damage):
    saved = written(files)
    whole = written(files)
    damage(files.folder / f"{saved.name}.text")
    assert TextFiles(tmp_path, KEY, 1 << 30).look().texts == [whole]
    assert len(caplog.records) == 1
    assert {path.name.split("-")[0].split(".")[0] for path in all_files(tmp_path)} == {whole.name}


def test_a_manifest_of_another_model_is_not_believed(files, tmp_path):
    saved = written(files)
    other = TextFiles(tmp_path, OTHER_KEY, 1 << 30)
    for path in files.folder.iterdir():
        path.rename(other.folder / path.name)
    assert other.look().texts == []
    assert not list(other.folder.glob(f"{saved.name}*"))


def test_a_part_that_another_lead_has_deleted_is_missed_before_a_manifest_names_it(files):
    first = written(files)
    (files.folder / first.parts[0].file).unlink()
    with pytest.raises(FileNotFoundError):
        written(files, content=b"more", name=first.name, end=20, known=first.parts)


def test_after_an_error_everything_is_as_before(files):
    first = written(files)
    before = all_files(files.folder)

    def fail(_n_bytes):
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        written(files, content=b"more", name=first.name, end=20, known=first.parts, pace=fail)
    assert all_files(files.folder) == before


def test_the_texts_that_were_used_least_recently_give_way_whatever_their_model(tmp_path):
    files, other = (TextFiles(tmp_path, key, 4_000_000) for key in (KEY, OTHER_KEY))
    old, older, used = written(files), written(other), written(files)
    for saved, folder, seconds in ((old, files, 50), (older, other, 60), (used, files, 70)):
        age(folder.folder / f"{saved.name}.text", seconds)
    files.touch(used.name)
    new = written(files)
    assert not list(other.folder.iterdir())
    kept = [saved.name for saved in TextFiles(tmp_path, KEY, 1).look().texts]
    assert kept == [old.name, used.name, new.name], "the least recently used comes first"


def test_what_killed_processes_left_goes_and_what_is_being_written_stays(files):
    abandoned, young = (files.folder / f"{new_name()}-0123456789ab.kv" for _ in range(2))
    for path in (abandoned, young):
        path.touch()
    age(abandoned, 4000)
    written(files)
    assert not abandoned.exists()
    assert young.exists()


def test_files_of_others_in_the_folder_are_never_touched(tmp_path):
    files = TextFiles(tmp_path, KEY, 10)
    foreign = [files.folder / "photo.json", tmp_path / "texts" / "letter.txt", tmp_path / "a" / "b.kv"]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
        age(path, 10_000)
    with contextlib.suppress(OSError):
        files.shrink(100)
    assert files.look() == ([], set())
    assert all(path.read_text() == "mine" for path in foreign)


def test_a_deleted_text_is_gone_and_may_be_deleted_twice(files):
    saved = written(files)
    for _ in range(2):
        files.delete(saved.name)
    assert not all_files(files.folder)


def test_texts_of_an_earlier_format_are_deleted_with_a_line_in_the_log(files, tmp_path, caplog):
    kept = written(files)
    folder, name = files.folder.parent / OTHER_KEY, new_name()
    folder.mkdir()
    for path in (folder / f"{name}.json", folder / f"{name}-0123456789ab.kv"):
        path.write_text("of another format")
    with caplog.at_level("INFO"):
        assert TextFiles(tmp_path, KEY, 1 << 30).look().texts == [kept]
    assert [record.getMessage() for record in caplog.records] == [
        "cache on disk: deleted 1 text of an earlier format"
    ]
    assert not list(folder.iterdir())
    assert contents_of(files, kept) == [CONTENT]


def test_names_of_texts_say_nothing_of_them():
    assert re.fullmatch(r"[0-9a-f]{24}", new_name())
    assert new_name() != new_name()


class TestNamed:
    """A client's text has one file. A changed file is not believed."""

    TEXT = SavedText(name="", owner="", tokens=list(range(10)), n_prefill=3, parts=())
    PIECES = (
        (Snapshot("text", 1, 10, 0), memoryview(bytes(range(200)))),
        (Snapshot("state", 2, 5), memoryview(b"a state")),
    )

    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "a"
        assert write_named(path, KEY, self.TEXT, self.PIECES) == path.stat().st_size
        return path

    def read(self, path):
        saved = read_manifest(path, KEY)
        into = [(part.snapshot(1), memoryview(bytearray(part.size))) for part in saved.parts]
        assert read_named(path, KEY, saved, into) == path.stat().st_size
        return saved, [bytes(view) for _, view in into]

    def test_what_was_written_is_read(self, path):
        saved, contents = self.read(path)
        assert (saved.tokens, saved.n_prefill) == (self.TEXT.tokens, self.TEXT.n_prefill)
        assert [part.snapshot(key) for key, part in enumerate(saved.parts, 1)] == [
            each for each, _ in self.PIECES
        ]
        assert contents == [bytes(piece) for _, piece in self.PIECES]

    def test_only_its_owner_can_read_it(self, path):
        assert path.stat().st_mode & 0o077 == 0

    def test_it_is_replaced_whole(self, path):
        write_named(path, KEY, self.TEXT.model_copy(update={"tokens": [1]}), self.PIECES)
        assert self.read(path)[0].tokens == [1]
        assert [each.name for each in path.parent.iterdir()] == ["a"]

    def test_another_text_that_has_replaced_it_since_is_not_taken_for_it(self, path):
        saved = read_manifest(path, KEY)
        into = [(part.snapshot(1), memoryview(bytearray(part.size))) for part in saved.parts]
        write_named(path, KEY, self.TEXT.model_copy(update={"tokens": [1]}), self.PIECES)
        with pytest.raises(DamagedTextError, match="replaced"):
            read_named(path, KEY, saved, into)

    def test_what_another_model_has_saved_is_refused(self, path):
        with pytest.raises(DamagedTextError, match="another model"):
            read_manifest(path, OTHER_KEY)

    @pytest.mark.parametrize(
        ("first", "reason"), [(b"llama-duo slot 1 ", "earlier version"), (b"GGUF", "not a saved text")]
    )
    def test_what_is_of_another_format_is_refused(self, path, first, reason):
        path.write_bytes(first + path.read_bytes())
        with pytest.raises(DamagedTextError, match=reason):
            read_manifest(path, KEY)

    def test_every_changed_or_missing_byte_is_noticed(self, path):
        whole = path.read_bytes()
        for at in range(len(whole)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(DamagedTextError):
                self.read(path)
        for n in range(len(whole)):
            path.write_bytes(whole[:n])
            with pytest.raises(DamagedTextError):
                self.read(path)
        path.write_bytes(whole + b"x")
        with pytest.raises(DamagedTextError, match="damaged"):
            self.read(path)

    @pytest.mark.parametrize("sizes", [(207 + 2**62, -(2**62)), (-1, 208)])
    def test_sizes_that_only_add_up_to_the_files_are_damage(self, path, sizes):
        magic, _, manifest, rest = path.read_bytes().split(b"\n", 3)
        changed = json.loads(manifest)
        for part, size in zip(changed["parts"], sizes, strict=True):
            part["size"] = size
        manifest = f"{json.dumps(changed)}\n".encode()
        digest = text_hash(manifest).hexdigest().encode()
        path.write_bytes(b"\n".join([magic, digest, manifest + rest]))
        with pytest.raises(DamagedTextError, match="damaged"):
            read_manifest(path, KEY)
