"""Biases of single tokens: what a client gives, and the ban of end tokens."""

from shared.sampling.sampler import BANNED, SamplingParameters


def biases(parameters: SamplingParameters, n_vocab: int, end_tokens: frozenset[int]) -> dict[int, float]:
    """What to add to the logits of which tokens."""
    bias = {token: value for token, value in parameters.logit_bias.items() if 0 <= token < n_vocab}
    if parameters.ignore_eos:
        bias |= dict.fromkeys(end_tokens, BANNED)
    return bias
