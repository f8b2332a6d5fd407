import pytest

from lead.engine.explain import Explain
from lead.metrics.exporter import MetricsExporter
from shared.errors import UnavailableError

EXPECTED = [
    "# TYPE llamacpp:prompt_tokens_total counter",
    "# TYPE llamacpp:n_tokens_max counter",
    "# TYPE llamacpp:requests_processing gauge",
    "# TYPE llama_duo:time_to_first_token_seconds histogram",
]


@pytest.fixture
def watched(lead):
    lead.app.state.metrics = MetricsExporter(lead.sequences, lead.backs)
    return lead


async def test_unless_switched_on_there_are_none(client):
    response = await client.get("/metrics")
    assert (response.status_code, response.json()["error"]["type"]) == (501, "not_supported_error")


async def test_prometheus_can_read_them(watched, client):
    watched.will_say("x")
    await client.post("/completion", json={"prompt": "Once"})
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert int(response.headers["process-start-time-unix"]) > 0
    lines = response.text.splitlines()
    assert [line for line in EXPECTED if line not in lines] == []
    assert "llamacpp:tokens_predicted_total 1.0" in lines


@pytest.mark.parametrize("error", [TimeoutError(), UnavailableError("the engine has ended")])
async def test_an_engine_that_does_not_answer_is_no_error(watched, client, error):
    watched.engine.replies[Explain] = error
    assert (await client.get("/metrics")).status_code == 200
