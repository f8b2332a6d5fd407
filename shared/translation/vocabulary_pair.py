"""Two vocabularies of llama.cpp as byte strings, with control tokens matched by their role."""

from collections.abc import Callable, Sequence
from functools import partial

from shared.llama.vocabulary import Vocabulary
from shared.translation.byte_vocabulary import ByteVocabulary
from shared.translation.projection import Projection

_SENTINEL = "\x02"
"""A text that SentencePiece joins with no other text, and before which it puts its leading blank."""

TokenMarks = dict[int, bytes]
"""Control tokens and the bytes that stand for them in texts; both vocabularies use the same bytes."""


def vocabulary_pair(draft: Vocabulary, target: Vocabulary) -> Projection:
    """Return the projection of a draft model's vocabulary onto the target's; takes seconds (see
    `stored_pair`).
    """
    draft_marks, target_marks = match_control_tokens(draft, target)
    literal = {
        token: text.encode() for text, token in target.special_tokens.items() if token != added_bos(target)
    }
    return Projection(byte_vocabulary(draft, draft_marks, {}), byte_vocabulary(target, target_marks, literal))


def prefix_of(draft: Vocabulary, target: Vocabulary) -> list[int]:
    """Return the draft model's tokens before every text: its BOS, unless the target's texts begin
    with one.
    """
    bos = added_bos(draft)
    return [bos] if bos is not None and added_bos(target) is None else []


def added_bos(vocabulary: Vocabulary) -> int | None:
    """Return the token with which every tokenized text begins; None: there is none.

    There may be none although the model has a BOS token, which then occurs only in chat templates.
    """
    return vocabulary.bos if vocabulary.adds_bos else None


def match_control_tokens(draft: Vocabulary, target: Vocabulary) -> tuple[TokenMarks, TokenMarks]:
    """Return equal marks for control tokens of both vocabularies that mean the same.

    They mean the same if they have the same text, are BOS, or end a turn. A mark is a byte string that
    replaces the token. Of tokens with the same mark, the first represents them. Tokens without a counterpart
    have no mark.
    """
    common = sorted(draft.special_tokens.keys() & target.special_tokens.keys())
    of_draft = {draft.special_tokens[text]: _mark(number) for number, text in enumerate(common)}
    of_target = {target.special_tokens[text]: _mark(number) for number, text in enumerate(common)}
    ends = draft.turn_end, target.turn_end
    if ends[0] is not None and ends[1] is not None:
        mark = of_target.get(ends[1]) or of_draft.get(ends[0]) or _mark(len(common))
        of_target = {ends[1]: mark} | of_target
        of_draft = of_draft if mark in of_draft.values() else {ends[0]: mark} | of_draft
        for marks, vocabulary in ((of_draft, draft), (of_target, target)):
            for token in sorted(vocabulary.end_tokens):
                marks.setdefault(token, mark)
    bos = added_bos(draft), added_bos(target)
    if bos[0] is not None and bos[1] is not None and bos[0] not in of_draft:
        of_draft[bos[0]] = of_target.setdefault(bos[1], _mark(len(common) + 1))
    return of_draft, of_target


def _mark(number: int) -> bytes:
    """Return bytes that are nowhere valid UTF-8: 0xff, and the number in five continuation bytes."""
    return b"\xff" + bytes(0x80 | number >> 6 * place & 0x3F for place in range(5))


def byte_vocabulary(vocabulary: Vocabulary, marks: TokenMarks, literal: dict[int, bytes]) -> ByteVocabulary:
    """Return the byte vocabulary of a model's vocabulary.

    `literal`: control tokens that stand for their text.
    """
    pieces = [
        marks.get(token)
        or literal.get(token)
        or (b"" if vocabulary.is_unused(token) else vocabulary.piece(token))
        for token in range(vocabulary.n_tokens)
    ]
    return ByteVocabulary(pieces, tokenizer_inside_text(vocabulary), preferred=_representatives(marks))


def _representatives(marks: TokenMarks) -> list[int]:
    first: dict[bytes, int] = {}
    for token, mark in marks.items():
        first.setdefault(mark, token)
    return list(first.values())


def tokenizer_inside_text(vocabulary: Vocabulary) -> Callable[[str], Sequence[int]]:
    """Return a tokenizer for text in the middle of a text: SentencePiece puts a blank before every text."""
    if not vocabulary.reads_any_text:
        return lambda _text: ()  # the longest tokens that fit are then used
    encode = partial(vocabulary.encode, add_special=False, parse_special=False)
    if b"".join(map(vocabulary.piece, encode("a"))) == b"a":
        return encode
    n_before = len(encode(_SENTINEL))
    return lambda text: encode(_SENTINEL + text)[n_before:]
