"""A target and its draft model, which read the same texts that the target writes."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.llama.model import Model
from shared.llama.span import Span
from shared.sampling.factory import make_sampler
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler
from shared.settings.model_options import ModelOptions

CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


class PairPosition(NamedTuple):
    """A place in a text: the tokens before it, the logits of both, and the target's choice with `sampler`."""

    tokens: list[int]
    sampler: Sampler
    target: NDArray[np.float32]
    draft: NDArray[np.float32]
    chosen: int


class ModelPair:
    """One text at a time."""

    def __init__(self, target: Path, draft: Path) -> None:
        self._target, self.draft = (
            Model(path, ModelOptions(ctx_size=1024, parallel=1, threads=1)) for path in (target, draft)
        )

    def positions(self, prompt: str, parameters: SamplingParameters, n_tokens: int) -> Iterator[PairPosition]:
        """Those of the answer to a prompt. Whoever decodes more with `draft` takes it back."""
        vocabulary = self._target.vocabulary
        tokens = vocabulary.tokenize(CHAT.format(prompt), add_special=True, parse_special=True)
        sampler = make_sampler(parameters, vocabulary, tokens)
        for model in (self._target, self.draft):
            model.trim(0, 0)
        n_done = 0
        for _ in range(n_tokens):
            target, draft = (next_logits(model, tokens, n_done) for model in (self._target, self.draft))
            n_done = len(tokens)
            chosen = sampler.choose(target, n_done)
            yield PairPosition(tokens, sampler, target, draft, chosen)
            tokens.append(chosen)
            if chosen in vocabulary.end_tokens:
                return


def next_logits(model: Model, tokens: Sequence[int], n_done: int) -> NDArray[np.float32]:
    """A copy of the logits behind `tokens`, of which `n_done` are decoded."""
    (rows,) = model.decode([Span(0, n_done, tokens[n_done:], 1)])
    return np.array(rows[0])
