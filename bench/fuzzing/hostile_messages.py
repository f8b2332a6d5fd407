"""What a hostile back says: from right over absurd to what is no message at all."""

import json
import random
from collections.abc import Mapping, Sequence

from bench.fuzzing.mutations import Message, Mutator
from shared.protocol import PROTOCOL_VERSION, Hello, VocabularyId

_NAMES = ("desk", "ngram", "lap.top", "a" * 64)


class HostileMessages:
    """Most of what it says would be true of a text that goes as `truth`."""

    def __init__(
        self, rng: random.Random, mutator: Mutator, vocabulary: VocabularyId, truth: Sequence[int]
    ) -> None:
        """truth: the token of each position."""
        self._rng = rng
        self._mutator = mutator
        self._vocabulary = vocabulary
        self._truth = truth
        self._last: str | bytes = "{}"

    def first_frame(self) -> str | bytes:
        """Of a WebSocket: mostly a good hello."""
        hello = self.hello()
        return json.dumps(hello) if self._rng.random() < 0.95 else self._mutator.broken(hello)  # noqa: PLR2004 - a share

    def hello(self) -> Message:
        """A good one."""
        return Hello(
            protocol=PROTOCOL_VERSION,
            name=self._rng.choice(_NAMES),
            vocabulary=self._vocabulary,
            n_ctx=0,
            n_sequences=self._rng.choice((1, 3, 1024)),
        ).model_dump()

    def frame(self, known: Mapping[str, int]) -> str | bytes:
        """Any further one; known: sequences, and how many tokens of each."""
        self._last = self._next_frame(known)
        return self._last

    def draft(self, known: Mapping[str, int]) -> Message:
        """Of the right shape, with contents from right to absurd."""
        rng = self._rng
        sequence, n_committed = rng.choice(list(known.items())) if known else ("f" * 32, 10)
        n = rng.choice((1, 1, 2, 4, 8, 8, 16, 64))
        base = max(0, n_committed - rng.choice((0, 0, 0, 1, 2, 5, 63, 64, 65, n_committed)))
        if rng.random() < 0.001:  # noqa: PLR2004 - a share: a hundred of them end a connection
            base = rng.choice((n_committed + 1, (1 << 31) - 1))
        tokens = [self._token(base + i) for i in range(n)]
        draft: Message = {"type": "draft", "sequence": sequence, "base": base, "tokens": tokens}
        if rng.random() < 0.02:  # noqa: PLR2004 - a share
            draft["sequence"] = rng.choice(("unknown", "\x00", "x" * 64))
        if rng.random() < 0.4:  # noqa: PLR2004 - a share
            shape = rng.choice(
                (lambda i: i - 1, lambda _: -1, lambda i: rng.randint(-1, i - 1), lambda i: max(-1, i - 3))
            )
            draft["parents"] = [shape(i) for i in range(n)]
        if rng.random() < 0.7:  # noqa: PLR2004 - a share
            draft["confidences"] = [rng.choice((0.0, 1.0, rng.random(), 5e-324)) for _ in range(n)]
        return draft

    def _next_frame(self, known: Mapping[str, int]) -> str | bytes:
        draft = self.draft(known)
        kind = self._rng.random()
        if kind < 0.96:  # noqa: PLR2004 - a share
            return json.dumps(draft, separators=(",", ":"))
        if kind < 0.97:  # noqa: PLR2004 - a share
            return self._last
        if kind < 0.971:  # noqa: PLR2004 - a share
            return json.dumps(draft | {"ignored": [0] * 31_000})
        return self._mutator.broken(draft)

    def _token(self, position: int) -> int:
        if self._rng.random() < 0.8:  # noqa: PLR2004 - as a good back
            return self._truth[position % len(self._truth)]
        return self._rng.choice(
            (0, self._vocabulary.n_tokens - 1, self._rng.randrange(self._vocabulary.n_tokens))
        )
