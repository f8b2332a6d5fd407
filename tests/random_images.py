"""Images of random sizes and embeddings, for prompts that are lists of tokens."""

import random
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from shared.image_span import ImageMemory, ImageSpan, image_start, row_identities, without_images


class RandomImages:
    """The images that prompts may have: of these kinds, or none."""

    def __init__(self, rng: random.Random, kinds: Iterable[ImageSpan] = ()) -> None:
        self._rng = rng
        self._kinds = {row_identities(kind.key, kind.n_rows)[0]: kind for kind in kinds}

    def put_into(self, prompt: list[int], rate: float = 0.5) -> list[int]:
        """The prompt with no, one or two images, none of them at its end."""
        while self._kinds and self._rng.random() < rate:
            at = image_start(prompt, self._rng.randint(0, max(0, len(prompt) - 1)))
            prompt = [*prompt[:at], *self._rows(self._rng.choice(list(self._kinds))), *prompt[at:]]
        return prompt

    def exchanged(self, prompt: list[int], rate: float = 0.3) -> list[int]:
        """The prompt, now and then with another image in the place of an image."""
        places = [at for at, token in enumerate(prompt) if token in self._kinds]
        if not places or self._rng.random() >= rate:
            return prompt
        at, other = self._rng.choice(places), self._rng.choice(list(self._kinds))
        return [*prompt[:at], *self._rows(other), *prompt[at + self._kinds[prompt[at]].n_rows :]]

    def spans(self, prompt: Sequence[int]) -> tuple[ImageSpan, ...]:
        """The images of a prompt."""
        if not self._kinds:
            return ()
        found = [(at, self._kinds[token]) for at, token in enumerate(prompt) if token in self._kinds]
        return tuple(kind.model_copy(update={"start": at}) for at, kind in found)

    def _rows(self, first: int) -> list[int]:
        kind = self._kinds[first]
        return list(row_identities(kind.key, kind.n_rows))


def random_kinds(rng: random.Random, max_rows: int, *, whole: bool) -> list[ImageSpan]:
    """Two images of one size, and an image of another size."""
    sizes = [rng.randint(1, max_rows) for _ in range(2)]
    return [_kind(rng, key, n, whole=whole) for key, n in zip("abc", [sizes[0], *sizes], strict=True)]


def _kind(rng: random.Random, key: str, n_rows: int, *, whole: bool) -> ImageSpan:
    width = 0 if whole else rng.randint(1, n_rows)
    n_positions = n_rows if whole else max(width, -(-n_rows // width))
    return ImageSpan(start=0, n_rows=n_rows, n_positions=n_positions, key=key, width=width, whole=whole)


def embed(kinds: Sequence[ImageSpan], n_embd: int) -> tuple[list[ImageSpan], ImageMemory, Any]:
    """The images with random embeddings, the memory of these, and a file to close once it was mapped."""
    ends = np.cumsum([kind.n_rows for kind in kinds])
    rows = np.random.default_rng(1).normal(size=(ends[-1], n_embd)).astype(np.float32)
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(rows.tobytes())
    file.flush()
    starts = [4 * n_embd * int(end - kind.n_rows) for kind, end in zip(kinds, ends, strict=True)]
    placed = [kind.model_copy(update={"offset": at}) for kind, at in zip(kinds, starts, strict=True)]
    return placed, ImageMemory(descriptor=file.fileno(), n_bytes=rows.nbytes), file


def cut(prompt: list[int], n: int) -> list[int]:
    """The first `n` tokens of a prompt, without a part of an image."""
    return prompt[: image_start(prompt, n)]


def ends_with_a_token(prompt: list[int]) -> list[int]:
    """The prompt without images at its end; at least one token."""
    while prompt and not without_images(prompt[-1:]):
        prompt = cut(prompt, len(prompt) - 1)
    return prompt or [1]
