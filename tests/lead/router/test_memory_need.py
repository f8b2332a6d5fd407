import subprocess

import pytest

from lead.engine.target_loading import limits_of, load_target
from lead.router import memory_need
from lead.settings.lead_settings import LeadSettings
from shared.errors import ConfigError, UnavailableError
from shared.model_files.builtin import builtin_target


@pytest.mark.parametrize(
    ("status", "kind", "said"), [(1, ConfigError, "^it is incomplete$"), (-9, UnavailableError, "estimated")]
)
async def test_a_killed_measurement_may_be_repeated_unlike_one_that_fails(monkeypatch, status, kind, said):
    async def end(command, *_):
        return subprocess.CompletedProcess(command, status, b"", b"a log line\nit is incomplete\n")

    monkeypatch.setattr(memory_need, "run_child", end)
    with pytest.raises(kind, match=said):
        await memory_need.measure({}, {})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ctx_size": 700},
        {"ctx_size": 1400, "kv_unified": False, "parallel": 2},
        {"ctx_size": 6000, "parallel": 2},
        {"exact": "on", "parallel": 2},
    ],
)
def test_the_context_of_one_request_is_the_engines(options):
    settings = LeadSettings.from_options(model=builtin_target(), **options)
    model, _ = load_target(settings.load_command(builtin_target()))
    try:
        n_trained = model.vocabulary.info.n_ctx_train
        need = memory_need.memory_need(settings, {})
        assert need.n_ctx_of_request(n_trained) == limits_of(model).n_ctx_sequence
    finally:
        model.close()
