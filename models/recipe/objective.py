"""What the training minimises: the loss per token, weighted; with a teacher mostly its distribution."""

from collections.abc import Callable

import torch
from model import Model
from torch import Tensor
from torch.nn import functional

Objective = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
_TEACHER_SHARE, _PLAIN_SHARE = 0.9, 0.1


def objective(model: Model, teacher: Model | None) -> Objective:
    """(ids, next ids, weights) → (what to minimise, the plain loss)."""

    def losses(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x)
        each = functional.cross_entropy(logits.float().flatten(0, 1), y.flatten(), reduction="none")
        plain = (each * w.flatten()).sum() / w.sum()
        if teacher is None:
            return plain, plain
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            wanted = teacher(x)
        p = wanted.float().softmax(-1)
        soft = -(p * logits.float().log_softmax(-1)).sum(-1)  # cross entropy = KL + a constant
        mixed = (soft.flatten() * w.flatten()).sum() / w.sum()
        return _TEACHER_SHARE * mixed + _PLAIN_SHARE * plain, plain

    return losses
