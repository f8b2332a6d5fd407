import psutil
import pytest

from lead.router.model_process import ModelProcess


@pytest.mark.parametrize("error", [psutil.NoSuchProcess(1), FileNotFoundError("/proc/1/statm")])
async def test_a_process_that_ends_while_its_memory_is_read_takes_none(monkeypatch, error):
    def has_ended(_):
        raise error

    process = await ModelProcess.spawn()
    try:
        assert process.own_bytes() > 0
        monkeypatch.setattr(psutil.Process, "memory_info", has_ended)
        assert process.own_bytes() == 0
    finally:
        await process.end()
