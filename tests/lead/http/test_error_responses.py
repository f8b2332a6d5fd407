import pytest


async def test_an_unknown_path_is_404_in_openais_shape(client):
    response = await client.get("/nope")
    assert response.status_code == 404
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


async def test_a_wrong_method_is_405_in_openais_shape(client):
    response = await client.delete("/health")
    assert (response.status_code, response.json()["error"]["type"]) == (405, "invalid_request_error")


async def test_a_bug_is_500_without_a_trace_for_the_client(lead, client, monkeypatch, caplog):
    def broken():
        raise ZeroDivisionError("the inside")

    monkeypatch.setattr(lead.backs, "describe", broken)
    response = await client.get("/v1/speculation")
    assert (response.status_code, response.json()["error"]["type"]) == (500, "server_error")
    assert "the inside" not in response.text
    assert "the inside" in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("DELETE", "/v1/speculation", {"GET", "PUT", "POST"}), ("GET", "/tokenize", {"POST"})],
)
async def test_a_wrong_method_is_405_with_all_right_ones(client, method, path, allowed):
    response = await client.request(method, path)
    assert response.status_code == 405
    assert set(response.headers["Allow"].split(", ")) == allowed


async def test_a_message_that_quotes_megabytes_is_cut(client):
    name = "x" * 1_000_000
    body = {"messages": [{"role": "user", "content": "Hi"}], "logit_bias": {name: "bad"}}
    response = await client.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert len(response.text) < 10_000
