import subprocess

import pytest

from lead.router import memory_need
from shared.errors import ConfigError, UnavailableError


@pytest.mark.parametrize(
    ("status", "kind", "said"), [(1, ConfigError, "^it is incomplete$"), (-9, UnavailableError, "estimated")]
)
async def test_a_killed_measurement_may_be_repeated_unlike_one_that_fails(monkeypatch, status, kind, said):
    async def end(command, *_):
        return subprocess.CompletedProcess(command, status, b"", b"a log line\nit is incomplete\n")

    monkeypatch.setattr(memory_need, "run_child", end)
    with pytest.raises(kind, match=said):
        await memory_need.measure({}, {})
