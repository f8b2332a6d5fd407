"""With the shipped q8_0 model and with stand-ins whose kernels differ."""

import numpy as np

from shared.llama import batch_invariance
from shared.llama.batch_invariance import BatchInvariance, measure_batch_invariance
from shared.llama.memory_traits import PLAIN
from shared.llama.span import Span


class Kernels:
    """A model whose logits and step times depend on the batch's width as told."""

    n_vocab = 4
    traits = PLAIN
    pads_single_tokens = False

    def __init__(self, logits, seconds):
        self._logits = logits
        self._seconds = seconds
        self.now = 0.0

    def decode(self, spans):
        width = len(spans[0].tokens)
        self.now += self._seconds.get(width, 1.0)
        return [np.full((spans[0].n_logits, 4), self._logits.get(width, 0.0), np.float32)]

    def trim(self, slot, n_keep):
        pass


def measure(monkeypatch, logits, seconds):
    model = Kernels(logits, seconds)
    monkeypatch.setattr(batch_invariance.time, "perf_counter", lambda: model.now)
    result = measure_batch_invariance(model)
    assert model.pads_single_tokens == result.pads
    return result


def test_quantized_weights_are_exact_without_padding(model):
    assert measure_batch_invariance(model) == BatchInvariance(exact=True, pads=False)


def test_the_probe_leaves_the_cache_empty(model):
    measure_batch_invariance(model)
    assert model.decode([Span(0, 0, [1], 1)])[0].shape == (1, model.n_vocab)


def test_a_lone_token_is_padded_where_that_is_free(monkeypatch):
    assert measure(monkeypatch, {1: 0.5}, {1: 1.0, 2: 1.04}) == BatchInvariance(exact=True, pads=True)


def test_plain_speed_counts_for_more_than_batch_invariance(monkeypatch):
    assert measure(monkeypatch, {1: 0.5}, {1: 1.0, 2: 1.3}) == BatchInvariance(exact=False, pads=False)


def test_padding_is_no_use_where_every_width_differs(monkeypatch):
    assert measure(monkeypatch, {1: 0.5, 2: 0.4}, {1: 1.0, 2: 1.0}) == BatchInvariance(
        exact=False, pads=False
    )
