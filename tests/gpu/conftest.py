"""Tests on one or two GPUs, which may be software: `make gpu-test`.

Without flash attention: with it, the software device of Debian 12 (lavapipe of Mesa 22.3) crashes.
"""

import pytest

from shared.llama import devices


@pytest.fixture(scope="session")
def n_gpus():
    """How many this build of llama.cpp sees."""
    return len(devices.all_devices())


@pytest.fixture
def two_gpus(n_gpus):
    if n_gpus < 2:
        pytest.skip("one device (GGML_VK_VISIBLE_DEVICES=0,0 makes two of a software one)")
