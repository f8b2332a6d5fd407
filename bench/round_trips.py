"""Whether texts keep their bytes between vocabularies: every one as draft model's and as target's."""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from bench import table
from shared.errors import TranslationError
from shared.llama.vocabulary import Vocabulary
from shared.translation.byte_vocabulary import ByteVocabulary
from shared.translation.vocabulary_pair import byte_vocabulary

_COLUMNS = {
    "vocabulary": ("vocabulary", ""),
    "n_tokens": ("tokens", "d"),
    "text_tokens": ("tokens of the text", "d"),
    "as_target": ("same as target's", ""),
    "as_draft": ("same as draft model's", ""),
    "refused": ("refused, with every other", ""),
}


def run(vocabularies: Sequence[Vocabulary], text: bytes) -> int:
    """Print a row for each vocabulary, then one line of JSON; returns 1 if a text was changed, else 0."""
    usable: dict[str, ByteVocabulary] = {}
    refused: dict[str, str] = {}
    for vocabulary in vocabularies:
        name = vocabulary.info.path.stem.removeprefix("ggml-vocab-")
        try:
            usable[name] = byte_vocabulary(vocabulary, {}, {})
        except TranslationError as error:
            refused[name] = str(error)
    same = {
        (target, draft): is_same(usable[target], usable[draft], text)
        for target, draft in itertools.permutations(usable, 2)
    }
    rows = list(_rows(usable, same, text))
    rows += [{"vocabulary": name, "refused": reason} for name, reason in refused.items()]
    table.show(
        "Texts that are the same: target's tokens -> bytes -> draft model's tokens -> bytes", rows, _COLUMNS
    )
    changed = [f"{target} -> {draft}" for (target, draft), is_right in same.items() if not is_right]
    print(json.dumps({"pairs": len(same), "changed": changed, "refused": refused}))
    return int(bool(changed))


def is_same(target: ByteVocabulary, draft: ByteVocabulary, text: bytes) -> bool:
    """Whether `text`, and each beginning of it that ends inside a character, survives."""
    pieces = [target.pieces[token] for token in target.encode(text)]
    beginnings = (b"".join(pieces[:end]) for end in range(1, len(pieces)))
    texts = [text, *(beginning for beginning in beginnings if _is_cut(beginning))]
    return b"".join(pieces) == text and all(_through(draft, each) == each for each in texts)


def _is_cut(beginning: bytes) -> bool:
    try:
        beginning.decode()
    except UnicodeDecodeError:
        return True
    return False


def _through(vocabulary: ByteVocabulary, text: bytes) -> bytes:
    return b"".join(vocabulary.pieces[token] for token in vocabulary.encode(text))


def _rows(
    usable: dict[str, ByteVocabulary], same: dict[tuple[str, str], bool], text: bytes
) -> Iterator[dict[str, Any]]:
    n_others = len(usable) - 1
    for name, vocabulary in usable.items():
        n_as_target = sum(is_right for (target, _), is_right in same.items() if target == name)
        n_as_draft = sum(is_right for (_, draft), is_right in same.items() if draft == name)
        yield {
            "vocabulary": name,
            "n_tokens": len(vocabulary),
            "text_tokens": len(vocabulary.encode(text)),
            "as_target": f"{n_as_target} of {n_others}",
            "as_draft": f"{n_as_draft} of {n_others}",
        }
