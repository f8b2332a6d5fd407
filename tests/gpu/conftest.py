"""Tests on one or two GPUs, which may be software: `make gpu-test`.

Flash attention is off: with it, the software device of Debian 12 (lavapipe of Mesa 22.3) crashes.
"""

import pytest

from shared.llama import devices


@pytest.fixture(scope="session", autouse=True)
def n_gpus():
    """The number of GPUs that this build of llama.cpp sees."""
    n = len(devices.all_devices())
    if n == 0:
        pytest.exit("this build of llama.cpp sees no GPU: make gpu-test", returncode=1)
    return n


@pytest.fixture
def two_gpus(n_gpus):
    if n_gpus < 2:
        pytest.skip("one device (GGML_VK_VISIBLE_DEVICES=0,0 makes two of a software one)")
