"""Images of random sizes for prompts that are lists of tokens."""

import random

from lead.engine.engine_limits import EngineLimits
from shared.image_span import ImageSpan, image_start, row_identities, without_images

_MOST_ROWS = 12


class RandomImages:
    """Two of one size and one of another, or none at all, by the identity of the first row."""

    def __init__(self, rng: random.Random, limits: EngineLimits):
        self._rng = rng
        self._kinds: dict[int, ImageSpan] = {}
        if limits.batch_sizes or rng.random() < 0.5:
            return
        is_whole = rng.random() < 0.5
        sizes = [rng.randint(1, min(_MOST_ROWS, limits.n_batch) if is_whole else _MOST_ROWS) for _ in "ab"]
        for key, n_rows in zip("abc", [sizes[0], *sizes], strict=True):
            width = 0 if is_whole else rng.randint(1, n_rows)
            n_positions = n_rows if is_whole else max(width, -(-n_rows // width))
            kind = ImageSpan(
                start=0, n_rows=n_rows, n_positions=n_positions, key=key, width=width, whole=is_whole
            )
            self._kinds[row_identities(key, n_rows)[0]] = kind

    def put_into(self, prompt: list[int], rate: float = 0.5) -> list[int]:
        """With an image somewhere, or two, or none; not at its end."""
        while self._kinds and self._rng.random() < rate:
            at = image_start(prompt, self._rng.randint(0, max(0, len(prompt) - 1)))
            prompt = [*prompt[:at], *self._rows(self._rng.choice(list(self._kinds))), *prompt[at:]]
        return prompt

    def exchanged(self, prompt: list[int]) -> list[int]:
        """Now and then with another image in the place of one."""
        places = [at for at, token in enumerate(prompt) if token in self._kinds]
        if not places or self._rng.random() < 0.7:
            return prompt
        at, other = self._rng.choice(places), self._rng.choice(list(self._kinds))
        return [*prompt[:at], *self._rows(other), *prompt[at + self._kinds[prompt[at]].n_rows :]]

    def spans(self, prompt: list[int]) -> tuple[ImageSpan, ...]:
        """Those that it has."""
        if not self._kinds:
            return ()
        found = [(at, self._kinds[token]) for at, token in enumerate(prompt) if token in self._kinds]
        return tuple(kind.model_copy(update={"start": at}) for at, kind in found)

    def _rows(self, first: int) -> list[int]:
        kind = self._kinds[first]
        return list(row_identities(kind.key, kind.n_rows))


def cut(prompt: list[int], n: int) -> list[int]:
    """Its first `n` tokens, without a part of an image."""
    return prompt[: image_start(prompt, n)]


def ends_with_a_token(prompt: list[int]) -> list[int]:
    """Without images at its end; at least one token."""
    while prompt and not without_images(prompt[-1:]):
        prompt = cut(prompt, len(prompt) - 1)
    return prompt or [1]
