"""Projections on disk."""

import shutil

import gguf
import numpy as np
import pytest

from shared.llama.vocabulary import Vocabulary
from shared.model_files.builtin import builtin_target
from shared.translation import stored_pair as module
from shared.translation.stored_pair import stored_pair
from shared.translation.vocabulary_pair import vocabulary_pair

DATA = "The hen and 世界 😀\r\n".encode()


@pytest.fixture
def pair(vocabularies):
    return vocabularies["shipped"], vocabularies["gpt2"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "user_cache_path", lambda _name: tmp_path)
    return tmp_path / "translations"


@pytest.fixture
def built(monkeypatch):
    """The pairs that were built, in order."""
    pairs = []

    def build(draft, target):
        pairs.append((draft, target))
        return vocabulary_pair(draft, target)

    monkeypatch.setattr(module, "vocabulary_pair", build)
    return pairs


def assert_same(one, other):
    assert np.array_equal(one.whole, other.whole)
    for mine, theirs in ((one.draft, other.draft), (one.target, other.target)):
        assert mine.pieces == theirs.pieces
        assert [mine.token_of(piece) for piece in mine.pieces] == [
            theirs.token_of(piece) for piece in mine.pieces
        ]
        assert mine.encode(DATA) == theirs.encode(DATA)


@pytest.mark.parametrize(
    ("draft", "target"), [("shipped", "gpt2"), ("gpt2", "llama2c"), ("llama2c", "shipped")]
)
def test_what_is_read_is_what_was_built(vocabularies, built, draft, target):
    pair = vocabularies[draft], vocabularies[target]
    first = stored_pair(*pair)
    assert_same(stored_pair(*pair), first)
    assert built == [pair]


@pytest.mark.parametrize(("n_keep", "end"), [(0, b""), (-200, b""), (0, b"x" * 900), (2000, b"x" * 900)])
def test_a_damaged_file_is_built_anew(pair, built, folder, n_keep, end):
    first = stored_pair(*pair)
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:n_keep] + end)
    assert_same(stored_pair(*pair), first)
    assert_same(stored_pair(*pair), first)
    assert len(built) == 2


def test_every_byte_counts(pair, folder):
    stored_pair(*pair)
    (path,) = folder.iterdir()
    data = path.read_bytes()
    for place in range(0, len(data), 97):
        with pytest.raises(ValueError, match="damaged"):
            module._unsealed(data[:place] + bytes([data[place] ^ 8]) + data[place + 1 :])


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays | {"whole": arrays["whole"][1:]},
        lambda arrays: arrays | {"whole": arrays["whole"] + 100_000},
        lambda arrays: arrays | {"draft_ends": arrays["draft_ends"][::-1]},
        lambda arrays: {name: each for name, each in arrays.items() if name != "target_bytes"},
    ],
    ids=["too short", "no such token", "no lengths", "no bytes"],
)
def test_a_file_with_another_content_is_built_anew(pair, built, folder, change):
    first = stored_pair(*pair)
    (path,) = folder.iterdir()
    with np.load(module._unsealed(path.read_bytes())) as arrays:
        changed = change(dict(arrays))
    path.write_bytes(module._sealed(changed))
    assert_same(stored_pair(*pair), first)
    assert len(built) == 2


def test_with_other_control_tokens_of_the_same_texts_it_is_built_anew(pair, built, tmp_path):
    """A model that was converted again may have such tokens."""
    path = shutil.copy(builtin_target(), tmp_path / "other.gguf")
    kinds = gguf.GGUFReader(path, "r+").fields["tokenizer.ggml.token_type"]
    kinds.parts[kinds.data[1000]][0] = gguf.TokenType.CONTROL
    other = Vocabulary.load(path)
    assert other.identify() == pair[0].identify()
    for draft in (pair[0], other):
        assert_same(stored_pair(draft, pair[1]), vocabulary_pair(draft, pair[1]))
    assert len(built) == 2


def test_another_version_is_built_anew(pair, built, monkeypatch):
    stored_pair(*pair)
    monkeypatch.setattr(module, "VERSION", module.VERSION + 1)
    stored_pair(*pair)
    assert len(built) == 2


def test_where_nothing_can_be_written_it_works_all_the_same(pair, built, folder):
    folder.write_text("not a folder")
    stored_pair(*pair)
    stored_pair(*pair)
    assert len(built) == 2


def test_only_the_latest_are_kept(pair, vocabularies, folder, monkeypatch):
    monkeypatch.setattr(module, "_N_FILES", 1)
    stored_pair(*pair)
    (folder / "left by a process that was killed.part").touch()
    stored_pair(vocabularies["gpt2"], vocabularies["llama2c"])
    assert len(list(folder.iterdir())) == 1
