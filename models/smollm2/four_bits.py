"""llama.cpp's IQ4_NL: blocks of 32 weights, each one of 16 uneven levels times the block's scale."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
BLOCK = 32
LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
"""`kvalues_iq4nl` of ggml."""
BORDERS = (LEVELS[1:] + LEVELS[:-1]) / 2
TRIED = np.linspace(0.88, 1.06, 7, dtype=np.float32)
"""Factors of the scale that puts a block's largest weight on the outermost level; the best one is taken."""
_AT_ONCE = 1 << 13  # blocks


def encode(weights: Floats) -> NDArray[np.uint8]:
    """Rows of bytes, the scale of each block with the least squared error."""
    blocks = weights.reshape(-1, BLOCK)
    parts = [_encode_blocks(blocks[start : start + _AT_ONCE]) for start in range(0, len(blocks), _AT_ONCE)]
    return np.concatenate(parts).reshape(*weights.shape[:-1], -1)


def decode(data: NDArray[np.uint8]) -> Floats:
    """What llama.cpp makes of it."""
    blocks = data.reshape(-1, 2 + BLOCK // 2)
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    halves = blocks[:, 2:]
    levels = LEVELS[np.concatenate([halves & 15, halves >> 4], axis=1)]
    return (levels * scales).reshape(*data.shape[:-1], -1)


def _encode_blocks(x: Floats) -> NDArray[np.uint8]:
    largest = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1)
    best_error = np.full(len(x), np.inf, np.float32)
    best_levels = np.zeros(x.shape, np.uint8)
    best_scale = np.zeros(len(x), np.float32)
    for outermost in (LEVELS[0], LEVELS[-1]):
        for factor in TRIED:
            scale = largest[:, 0] / outermost * factor
            chosen = np.searchsorted(BORDERS, x * _inverse(scale)[:, None]).astype(np.uint8)
            levels = LEVELS[chosen]
            # the least squares scale for these levels
            scale = (x * levels).sum(1) / (levels * levels).sum(1)
            scale = scale.astype(np.float16).astype(np.float32)
            error = ((x - levels * scale[:, None]) ** 2).sum(1)
            better = error < best_error
            best_error[better], best_scale[better], best_levels[better] = (
                error[better],
                scale[better],
                chosen[better],
            )
    half = BLOCK // 2
    packed = best_levels[:, :half] | best_levels[:, half:] << 4
    return np.concatenate([best_scale.astype(np.float16)[:, None].view(np.uint8), packed], axis=1)


def _inverse(scale: Floats) -> Floats:
    return np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
