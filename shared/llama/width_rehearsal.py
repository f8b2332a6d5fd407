"""Tries a policy of widths on the loaded model: is a text's logits the same, whatever happens around it?

One text is decoded alone, token by token; then in another slot, its prompt in other pieces, beside busy slots
of other lengths, with drafts that are partly wrong and trimmed. All logits must be equal bit for bit.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle

from shared.llama.model import Model
from shared.llama.span import Span
from shared.llama.width_policy import RESERVE, WidthPolicy

_N_PROMPT = 45
_ACTIVATIONS = 300_000
"""How many are compared (see `shared.llama.width_probe`): tokens, times layers, times the width of a
layer."""
_TOKENS = (24, 200)
"""The least and the most tokens of the answer."""
NEEDED_CONTEXT = 96 + RESERVE
"""Tokens that each slot must hold."""
_PIECES = (13, 1, 40)
"""In which the prompt is read the second time, as far as it goes."""
_MOST_OTHERS = 3
_OTHERS = 9
"""Tokens of the first other slot, and by how many each has more than the one before."""
_WRONG = 2
"""Draft tokens of each step that are trimmed again."""


def rehearse(model: Model, policy: WidthPolicy) -> WidthPolicy | None:
    """Put `policy` into force in `model`, or else one without joint passes; None if neither keeps the bits.

    All slots must be empty and are left empty.
    """
    for tried in dict.fromkeys((policy, replace(policy, joins=False))):
        model.widths = tried
        if _alone(model, tried) == _in_company(model, tried):
            return tried
    model.widths = None
    return None


def _alone(model: Model, policy: WidthPolicy) -> list[bytes]:
    """The answer in the narrowest width."""
    text, width = _text(model, 0), policy.answer[0]
    prints = _decode(model, [_prompt(0, 0, text[:_N_PROMPT])], 0)
    for at in range(_N_PROMPT, len(text), width):
        tokens = text[at : at + width]
        prints += _decode(model, [Span(0, at, tokens, len(tokens))], 0)
    model.trim(0, 0)
    return prints


def _in_company(model: Model, policy: WidthPolicy) -> list[bytes]:
    slot = model.n_slots - 1
    for number, other in enumerate(_other_slots(slot), 1):
        _decode(model, [_prompt(other, 0, _text(model, number)[: _OTHERS * number])], 0)
    prints = _read_in_pieces(model, slot)
    prints += _answer_with_drafts(model, slot, policy)
    for each in range(model.n_slots):
        model.trim(each, 0)
    return prints


def _read_in_pieces(model: Model, slot: int) -> list[bytes]:
    text, at, prints = _text(model, 0), 0, []
    for n in cycle(_PIECES):
        piece = text[at : min(at + n, _N_PROMPT)]
        prints = _decode(model, [*_others(model, slot), _prompt(slot, at, piece)], -1)
        at += len(piece)
        if at == _N_PROMPT:
            break
    return prints


def _answer_with_drafts(model: Model, slot: int, policy: WidthPolicy) -> list[bytes]:
    """Right tokens and then wrong ones, in steps of many widths."""
    text, at, prints = _text(model, 0), _N_PROMPT, []
    for n_right in cycle(range(1, max(2, min(_N_PROMPT, policy.answer[-1]) - _WRONG))):
        right = text[at : at + n_right]
        wrong = text[1 : 1 + min(_WRONG, policy.answer[-1] - len(right))]
        span = Span(slot, at, [*right, *wrong], len(right) + len(wrong))
        prints += _decode(model, [*_others(model, slot), span], -1)[: len(right)]
        at += len(right)
        model.trim(slot, at)
        if at == len(text):
            break
    return prints


def _other_slots(slot: int) -> range:
    return range(max(0, slot - _MOST_OTHERS), slot)


def _others(model: Model, slot: int) -> list[Span]:
    """One token of each other slot, which is trimmed by the next call."""
    spans = []
    for number, other in enumerate(_other_slots(slot), 1):
        model.trim(other, _OTHERS * number)
        spans.append(Span(other, _OTHERS * number, _text(model, number)[:1], 1))
    return spans


def _decode(model: Model, spans: Sequence[Span], index: int) -> list[bytes]:
    """Digests of the logits of one of the spans."""
    return [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in model.decode(spans)[index]]


def _prompt(slot: int, at: int, tokens: Sequence[int]) -> Span:
    return Span(slot, at, tokens, 1, is_prompt=True)


def _text(model: Model, number: int) -> list[int]:
    least, most = _TOKENS
    n_answer = min(max(least, _ACTIVATIONS // model.n_activations), most)
    n_tokens = min(_N_PROMPT + n_answer, model.n_ctx_slot - RESERVE)
    return [(7919 * i + 101 * number + 31) % model.n_vocab for i in range(n_tokens)]
