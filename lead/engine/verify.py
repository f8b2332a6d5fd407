"""Verification: which tokens a step commits.

The draft is compared with the target's own choices and never influences them (accept if equal), so the
tokens are those of a run without drafts.
"""

from collections.abc import Callable, Container, Sequence
from typing import NamedTuple


class VerifiedTokens(NamedTuple):
    """tokens[:n_accepted] equal the draft; one more follows unless the sequence ended inside the draft."""

    tokens: list[int]
    n_accepted: int


def verify(
    draft: Sequence[int],
    choose: Callable[[int], int],
    end_tokens: Container[int],
    tokens: list[int] | None = None,
) -> VerifiedTokens:
    """Follow `draft` as long as the target agrees.

    `choose(i)` is the target's token after the committed ones and draft[:i]; it is called for i = 0, 1, … in
    order, and only while draft[:i] has been accepted. The last token is the recovered one (the target's own
    at the first mismatch) or the bonus after a fully accepted draft; nothing follows an end token.

    tokens: what was chosen before `choose` raised an error; it goes on from there, in the same list.
    """
    tokens = [] if tokens is None else tokens
    for i in range(len(tokens), len(draft) + 1):
        token = choose(i)
        tokens.append(token)
        accepted = i < len(draft) and token == draft[i]
        if not accepted:
            return VerifiedTokens(tokens, i)
        if token in end_tokens:
            break
    return VerifiedTokens(tokens, len(tokens))
