"""Batches of packed rows, shuffled anew for each pass over the data."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

_LENGTHS = (512, 1024, 2048)


def batches(data: Path, n_tokens: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless (ids, weights) of about `n_tokens` tokens; all rows of one batch have one length."""
    rng = np.random.default_rng(seed)
    files = {length: np.load(data / f"rows{length}.npz") for length in _LENGTHS}
    ids = {length: file["ids"] for length, file in files.items()}
    weights = {length: file["weight"] for length, file in files.items()}
    while True:
        plan = []
        for length in _LENGTHS:
            size = max(1, n_tokens // length)
            order = rng.permutation(len(ids[length]))
            plan += [(length, order[start : start + size]) for start in range(0, len(order) - size + 1, size)]
        for chosen in rng.permutation(len(plan)):
            length, rows = plan[int(chosen)]
            yield (
                torch.from_numpy(ids[length][rows].astype(np.int64)),
                torch.from_numpy(weights[length][rows].astype(np.float32)),
            )
