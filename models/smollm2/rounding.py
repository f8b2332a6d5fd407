"""What `four_bits` makes of weights, in PyTorch: on a GPU it takes a small part of a training step."""

from collections.abc import Sequence

import torch
from four_bits import BLOCK, BORDERS, LEVELS, TRIED
from torch import Tensor

_AT_ONCE = 1 << 13  # blocks, on a CPU: as many as its cache holds


def rounded(weights: Sequence[Tensor]) -> list[Tensor]:
    """These matrices as they are once encoded and decoded."""
    blocks = torch.cat([each.detach().reshape(-1, BLOCK) for each in weights])
    whole = torch.cat([_round(part) for part in blocks.split(len(blocks) if blocks.is_cuda else _AT_ONCE)])
    sizes = [each.numel() // BLOCK for each in weights]
    return [part.view_as(each) for part, each in zip(whole.split(sizes), weights, strict=True)]


def _round(x: Tensor) -> Tensor:
    values, borders = (torch.from_numpy(each).to(x.device) for each in (LEVELS, BORDERS))
    largest = x.gather(1, x.abs().argmax(1, keepdim=True))[:, 0]
    best_error = torch.full_like(largest, torch.inf)
    best = torch.zeros_like(x)
    for outermost in (float(LEVELS[0]), float(LEVELS[-1])):
        for factor in TRIED.tolist():
            scale = largest / outermost * factor
            inverse = torch.where(scale == 0, 0.0, 1 / scale)
            levels = values[torch.bucketize(x * inverse[:, None], borders, out_int32=True)]
            # the least squares scale for these levels
            scale = ((x * levels).sum(1) / (levels * levels).sum(1)).half().float()
            tried = levels * scale[:, None]
            error = (x - tried).square().sum(1)
            better = error < best_error
            best_error = torch.where(better, error, best_error)
            best = torch.where(better[:, None], tried, best)
    return best
