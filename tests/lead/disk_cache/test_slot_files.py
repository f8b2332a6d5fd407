"""The files of saved slots: nothing is believed that was not written so by a start like this one."""

import json

import pytest

from lead.disk_cache import slot_files
from shared.cache_edits import Snapshot
from shared.errors import RequestError
from shared.saved_text import SavedText, text_hash

KEY = "0123456789abcdef01234567"
TEXT = SavedText(name="", owner="", tokens=list(range(10)), n_prefill=3, parts=())
PIECES = [
    (Snapshot("text", 1, 10, 0), memoryview(bytes(range(200)))),
    (Snapshot("state", 2, 5), memoryview(b"a state")),
]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a"
    assert slot_files.write(path, KEY, TEXT, PIECES) == path.stat().st_size
    return path


def read(path, key=KEY):
    saved = slot_files.read_manifest(path, key)
    into = [bytearray(part.size) for part in saved.parts]
    assert slot_files.read_parts(path, key, [memoryview(each) for each in into]) == path.stat().st_size
    return saved, [bytes(each) for each in into]


def test_what_was_written_is_read(path):
    saved, contents = read(path)
    assert (saved.tokens, saved.n_prefill) == (TEXT.tokens, TEXT.n_prefill)
    assert [part.snapshot(key) for key, part in enumerate(saved.parts, 1)] == [each for each, _ in PIECES]
    assert contents == [bytes(piece) for _, piece in PIECES]


def test_only_the_owner_can_read_it(path):
    assert path.stat().st_mode & 0o077 == 0


def test_a_file_is_replaced_whole(path):
    slot_files.write(path, KEY, TEXT.model_copy(update={"tokens": [1]}), PIECES)
    assert read(path)[0].tokens == [1]
    assert [each.name for each in path.parent.iterdir()] == ["a"]


def test_what_another_model_has_saved_is_refused(path):
    with pytest.raises(RequestError, match="another model"):
        slot_files.read_manifest(path, KEY[::-1])


def test_every_changed_or_missing_byte_is_noticed(path):
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(RequestError):
            read(path)
    for n in range(len(whole)):
        path.write_bytes(whole[:n])
        with pytest.raises(RequestError):
            read(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(RequestError, match="damaged"):
        read(path)


def test_what_cannot_be_opened_or_written_is_said(tmp_path):
    with pytest.raises(RequestError, match="there is no a"):
        slot_files.read_manifest(tmp_path / "a", KEY)
    with pytest.raises(RequestError, match="cannot read"):
        slot_files.read_manifest(tmp_path, KEY)
    with pytest.raises(RequestError, match="cannot write a"):
        slot_files.write(tmp_path / "nowhere" / "a", KEY, TEXT, PIECES)


@pytest.mark.parametrize("sizes", [(207 + 2**62, -(2**62)), (-1, 208)])
def test_sizes_that_only_add_up_to_the_files_are_damage(path, sizes):
    magic, _, manifest, rest = path.read_bytes().split(b"\n", 3)
    changed = json.loads(manifest)
    for part, size in zip(changed["parts"], sizes, strict=True):
        part["size"] = size
    manifest = json.dumps(changed).encode()
    digest = text_hash(manifest).hexdigest().encode()
    path.write_bytes(b"\n".join([magic, digest, manifest, rest]))
    with pytest.raises(RequestError, match="damaged"):
        slot_files.read_manifest(path, KEY)
