"""The file that backs of another vocabulary download."""

import gzip

import pytest

from lead.backs import vocabulary_offer as module
from lead.backs.vocabulary_offer import VocabularyOffer
from shared.errors import UnavailableError
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_target


@pytest.fixture
def vocabulary():
    return Vocabulary.load(builtin_target())


@pytest.fixture
def offer(vocabulary, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "user_cache_path", lambda _name: tmp_path)
    return VocabularyOffer(vocabulary)


async def test_the_file_holds_the_lead_s_vocabulary(offer, vocabulary):
    path = await offer.path(compressed=False)
    assert Vocabulary.load(path).identify() == vocabulary.identify()


async def test_the_compressed_file_is_the_same_but_smaller(offer):
    plain, compressed = [await offer.path(compressed=each) for each in (False, True)]
    assert gzip.decompress(compressed.read_bytes()) == plain.read_bytes()
    assert compressed.stat().st_size < plain.stat().st_size


async def test_the_file_is_made_once(offer, monkeypatch):
    path = await offer.path(compressed=False)
    monkeypatch.setattr(module, "write_vocabulary_file", None)
    assert await offer.path(compressed=False) == path


async def test_a_cache_that_cannot_be_written_is_an_error(offer, tmp_path):
    (tmp_path / "vocabularies").write_text("a file in the way")
    with pytest.raises(UnavailableError, match="cannot be made"):
        await offer.path(compressed=True)
