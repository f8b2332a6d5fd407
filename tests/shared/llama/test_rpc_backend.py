"""Where llama.cpp was built without RPC; tests/real/test_rpc.py has the other case."""

import pytest

from shared.errors import ConfigError
from shared.llama import devices, rpc_backend


def test_devices_are_found_by_name():
    assert rpc_backend.find_devices(["CPU"]) == [devices.pointers()[devices.names().index("CPU")]]


def test_a_device_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(ConfigError, match=r"--device CUDA9: there are .*CPU"):
        rpc_backend.find_devices(["CPU", "CUDA9"])
