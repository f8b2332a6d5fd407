"""How far the draft's distributions are from the target's, over the whole vocabulary.

A distribution takes 200 kB a token. So a part of the tokens at a time is compared, and the gradient is
computed there and then, in the forward pass: nothing of that size is kept.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

_AT_ONCE = 4096  # tokens, on a GPU
_AT_ONCE_ON_CPU = 256
_WEIGHT_OF_VARIATION = 4.0  # about as large a gradient as the divergence's


class Goal(NamedTuple):
    """What is compared: logits by both output matrices, at a temperature; and by which measure."""

    target_head: Tensor
    draft_head: Tensor
    temperature: float
    share_of_variation: float = 0.0
    """How much of the loss is the total variation instead of the divergence."""


class Comparison(NamedTuple):
    loss: Tensor
    divergence: Tensor
    """Kullback-Leibler, for each token."""
    overlap: Tensor
    """The part of both distributions that is the same: how many drafts are accepted."""
    same: Tensor
    """Whether the likeliest tokens are the same."""


def compare(drafted: Tensor, wanted: Tensor, weights: Tensor, goal: Goal) -> Comparison:
    """Of both models' states [tokens, dim]; the loss is a weighted mean."""
    return Comparison(*_Compare.apply(drafted, wanted, weights / weights.sum(), goal))


class _Compare(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, drafted: Tensor, wanted: Tensor, weights: Tensor, goal: Goal
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        share, gradient = goal.share_of_variation, torch.empty_like(drafted)
        n = len(drafted)
        divergence, overlap = drafted.new_empty(n), drafted.new_empty(n)
        same = torch.empty(n, dtype=torch.bool, device=drafted.device)
        at_once = _AT_ONCE if drafted.is_cuda else _AT_ONCE_ON_CPU
        for start in range(0, n, at_once):
            part = slice(start, start + at_once)
            log_p = (wanted[part] @ goal.target_head.T).div_(goal.temperature).log_softmax(-1)
            log_q = (drafted[part] @ goal.draft_head.T).div_(goal.temperature).log_softmax(-1)
            same[part] = log_p.argmax(-1) == log_q.argmax(-1)
            p, q = log_p.exp(), log_q.exp()
            divergence[part] = torch.linalg.vecdot(p, log_p.sub_(log_q))
            difference = q.sub(p)
            overlap[part] = 1 - difference.abs().sum(-1) / 2
            # with respect to the draft's logits
            slope = difference * (1 - share)
            if share:
                q_signed = difference.sign_().mul_(q)
                variation = q_signed.sub_(q.mul_(q_signed.sum(-1, keepdim=True))).mul_(0.5)
                slope.add_(variation, alpha=share * _WEIGHT_OF_VARIATION)
            slope.mul_(weights[part, None] / goal.temperature)
            gradient[part] = slope @ goal.draft_head
        each = (1 - share) * divergence + share * _WEIGHT_OF_VARIATION * (1 - overlap)
        context.save_for_backward(gradient)
        context.mark_non_differentiable(divergence, overlap, same)
        return (each * weights).sum(), divergence, overlap, same

    @staticmethod
    def backward(context: Any, loss: Tensor, *_: Any) -> tuple[Tensor, None, None, None]:
        (gradient,) = context.saved_tensors
        return gradient * loss, None, None, None
