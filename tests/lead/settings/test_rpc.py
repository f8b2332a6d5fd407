import llama_cpp
import pytest
from pydantic import ValidationError

from lead.settings.lead_settings import LeadSettings
from shared.errors import ConfigError

WORKERS = ("desk1:50052", "10.8.0.2:50052")


def test_workers_are_read_in_their_order():
    assert LeadSettings.from_options(rpc=",".join(WORKERS)).workers.rpc == WORKERS


@pytest.mark.parametrize(
    "workers", ["desk1", "[::1]:50052", "desk1:50052,desk1:50052", ",".join(f"w{i}:1" for i in range(17))]
)
def test_what_llama_cpp_cannot_reach_is_refused(workers):
    with pytest.raises(ValidationError, match="workers"):
        LeadSettings.from_options(rpc=workers)


def test_without_rpc_in_llama_cpp_the_lead_says_how_to_build_it(monkeypatch):
    monkeypatch.setattr(llama_cpp, "llama_supports_rpc", lambda: False)
    with pytest.raises(ConfigError, match="CMAKE_ARGS=-DGGML_RPC=ON make setup"):
        LeadSettings.from_options(rpc=WORKERS[0]).located()
    LeadSettings.from_options().located()
