"""The vocabulary file that backs with another vocabulary download."""

import gzip

import pytest

from lead.translation import vocabulary_offer as module
from lead.translation.vocabulary_offer import VocabularyOffer
from shared.errors import UnavailableError
from shared.llama.vocabulary import Vocabulary
from shared.model_files.builtin import builtin_target


@pytest.fixture
def vocabulary():
    return Vocabulary.load(builtin_target())


@pytest.fixture
def offer(vocabulary, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "user_cache_path", lambda _name: tmp_path)
    return VocabularyOffer(vocabulary.info.path)


async def test_the_compressed_file_is_the_same_but_smaller(offer):
    _, plain, compressed = await offer.files()
    assert gzip.decompress(compressed.read_bytes()) == plain.read_bytes()
    assert compressed.stat().st_size < plain.stat().st_size


async def test_the_file_is_made_once(offer, monkeypatch):
    files = await offer.files()
    monkeypatch.setattr("shared.llama.gguf_metadata.write_vocabulary_file", None)
    assert await offer.files() == files


async def test_an_emptied_cache_is_filled_again(offer):
    _, plain, compressed = await offer.files()
    for path in (plain, compressed):
        path.unlink()
        await offer.files()
        assert plain.exists() and compressed.exists()  # noqa: PT018 - one claim


async def test_models_with_the_same_tokens_are_told_apart(offer, vocabulary, tmp_path):
    name = vocabulary.info.name.encode()
    other = tmp_path / "other.gguf"
    other.write_bytes(builtin_target().read_bytes().replace(name, name[::-1], 1))
    others = VocabularyOffer(other)
    assert (await offer.files()).digest != (await others.files()).digest


async def test_old_files_are_removed(offer, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_N_FILES", 2)
    (tmp_path / "vocabularies").mkdir()
    (tmp_path / "vocabularies" / "of an older model.gguf").touch()
    _, plain, compressed = await offer.files()
    assert set(plain.parent.iterdir()) == {plain, compressed}


async def test_a_cache_that_cannot_be_written_is_an_error(offer, tmp_path):
    (tmp_path / "vocabularies").write_text("a file in the way")
    with pytest.raises(UnavailableError, match="cannot write the vocabulary file"):
        await offer.files()
