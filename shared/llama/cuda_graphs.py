"""Switches CUDA graphs off if a replayed step would be wrong.

The CUDA backend records a step that has the shape of the step before it. When another shape is recorded, it
updates the recorded graph. On an H200, 8 to 17 of 300 rows of random traffic were then wrong in three of 15
runs, by as much as logits differ from each other. Without graphs none were. The likely reason: cuBLAS kernels
use clusters of blocks since compute capability 9.0, and `cudaGraphExecUpdate` ignores the number of blocks in
a cluster. Others have found this, too. cuBLAS multiplies weights that are not quantized, and computes
attention without flash attention.
"""

import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path

from shared.llama.gguf_metadata import unquantized_tensors
from shared.model_files.file_kind import parts_of

log = logging.getLogger("llama")

_FIRST_WITH_CLUSTERS = 9.0
_SWITCH = "GGML_CUDA_DISABLE_GRAPHS"
"""The environment variable that ggml reads when it computes for the first time."""
_CAPABILITY = re.compile(r"compute capability (\d+\.\d+)")
_VECTOR = re.compile(r"norm|\.bias$|^rope_|sinks")
"""Matches the names of tensors that are not matrices."""
NO_FLASH_ATTENTION = "Flash Attention not supported"


def switch_off_if_wrong(path: Path, log_lines: Iterable[str], *, flash_attention: bool) -> None:
    """Switch CUDA graphs off for this process if they would be wrong with the model at `path`.

    Call it before the model's first step. log_lines: llama.cpp's messages about the devices, and about the
    model's context. flash_attention: True if flash attention may be used.
    """
    lines = list(log_lines)
    capabilities = [float(found[1]) for line in lines if (found := _CAPABILITY.search(line))]
    if max(capabilities, default=0.0) < _FIRST_WITH_CLUSTERS or _SWITCH in os.environ:
        return
    flash_attention &= not any(NO_FLASH_ATTENTION in line for line in lines)
    if flash_attention and not _has_unquantized_matrices(path):
        return
    os.environ[_SWITCH] = "1"
    log.info("CUDA graphs are off because they can give wrong results with unquantized weights on this GPU")


def _has_unquantized_matrices(path: Path) -> bool:
    names = (name for part in parts_of(path) for name in unquantized_tensors(part))
    return any(not _VECTOR.search(name) for name in names)
