"""The projection between two vocabularies, cached on disk because building it takes seconds.

The cache folder has one file per pair: a SHA-256, and the arrays that it covers. A file that cannot be read,
is damaged or belongs to another pair is replaced.
"""

import hashlib
import io
import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from platformdirs import user_cache_path

from shared.cached_files import CacheFolder, remove_oldest, written_whole
from shared.llama import library
from shared.llama.vocabulary import Vocabulary
from shared.translation.byte_vocabulary import ByteVocabulary
from shared.translation.projection import NONE, Projection
from shared.translation.vocabulary_pair import tokenizer_inside_text, vocabulary_pair

log = logging.getLogger("translation")

VERSION = 3
"""Increase this when projections are built or written differently than before."""

_N_DIGEST = hashlib.sha256().digest_size
_N_FILES = 32
"""The number of files of about 4 MB that are kept; the oldest files are deleted."""

_PROBES = ("The cat, 12 naïve", "\n\tcafés:", " 世界", "😀", "  {x}\r\n", "A")
"""Texts that show how a tokenizer treats blanks, unknown characters and lines, and whether it changes texts.
"""

_Arrays = dict[str, NDArray[np.generic]]


def stored_pair(draft: Vocabulary, target: Vocabulary) -> Projection:
    """Return the result of `vocabulary_pair`, ten times as fast from the second call on."""
    path = _path(draft, target)
    try:
        with np.load(_unsealed(path.read_bytes()), allow_pickle=False) as arrays:
            return _read(arrays, draft, target)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError) as error:
        log.info("building %s again: %s", path, error)
    projection = vocabulary_pair(draft, target)
    try:
        _write(path, projection)
    except OSError as error:
        log.info("cannot save the translation, so the next start compares the vocabularies again: %s", error)
    return projection


def _path(draft: Vocabulary, target: Vocabulary) -> Path:
    """Return the path of the file for this pair of vocabularies.

    A vocabulary's fingerprint covers only the tokens' texts, but attributes and tokenization matter here,
    too.
    """
    digest = hashlib.sha256(f"{VERSION}\0{library.build()}".encode())
    for vocabulary in (draft, target):
        digest.update(
            f"\0{vocabulary.identify().fingerprint}\0{vocabulary.n_tokens}\0{vocabulary.bos}\0{vocabulary.adds_bos}"
            f"\0{vocabulary.turn_end}\0{sorted(vocabulary.end_tokens)}".encode()
        )
        digest.update(vocabulary.attributes.tobytes())
        tokenize = tokenizer_inside_text(vocabulary)
        digest.update(repr([list(tokenize(probe)) for probe in _PROBES]).encode())
    return user_cache_path("llama-duo") / CacheFolder.TRANSLATIONS / f"{digest.hexdigest()[:24]}.pair"


def _read(arrays: _Arrays, draft: Vocabulary, target: Vocabulary) -> Projection:
    """Return the projection in `arrays`; raises ValueError or KeyError if it is not a projection between
    these two vocabularies.
    """
    whole = arrays["whole"].astype(np.int32)
    if whole.shape != (draft.n_tokens,) or whole.min() < NONE or whole.max() >= target.n_tokens:
        raise ValueError("the projection does not fit these vocabularies")
    return Projection(_vocabulary(arrays, "draft", draft), _vocabulary(arrays, "target", target), whole)


def _vocabulary(arrays: _Arrays, name: str, vocabulary: Vocabulary) -> ByteVocabulary:
    data, ends = arrays[f"{name}_bytes"].tobytes(), arrays[f"{name}_ends"].tolist()
    if len(ends) != vocabulary.n_tokens or ends != sorted(ends) or ends[-1] != len(data):
        raise ValueError(f"these are not the tokens of {vocabulary.info.name}")
    pieces = [data[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    preferred = arrays[f"{name}_preferred"].tolist()
    return ByteVocabulary(pieces, tokenizer_inside_text(vocabulary), preferred)


def _write(path: Path, projection: Projection) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as part:
        part.write_bytes(_sealed(_arrays(projection)))
    remove_oldest(path.parent, _N_FILES)


def _sealed(arrays: _Arrays) -> bytes:
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return hashlib.sha256(file.getbuffer()).digest() + file.getvalue()


def _unsealed(data: bytes) -> io.BytesIO:
    """Return the content for numpy.

    Raises ValueError for a damaged file, for which numpy and zipfile would raise any kind of error.
    """
    digest, content = data[:_N_DIGEST], data[_N_DIGEST:]
    if hashlib.sha256(content).digest() != digest:
        raise ValueError("the file is damaged")
    return io.BytesIO(content)


def _arrays(projection: Projection) -> _Arrays:
    arrays: _Arrays = {"whole": projection.whole}
    for name, vocabulary in (("draft", projection.draft), ("target", projection.target)):
        arrays[f"{name}_bytes"] = np.frombuffer(b"".join(vocabulary.pieces), np.uint8)
        arrays[f"{name}_ends"] = np.cumsum([len(piece) for piece in vocabulary.pieces])
        arrays[f"{name}_preferred"] = np.array(vocabulary.preferred, np.int32)
    return arrays
