import json

import httpx
import pytest

from bench import load
from bench.client import Sampling
from bench.load import Stay, digest, percentile, put_on
from bench.prompts import Prompt
from shared.errors import ConfigError


def text(content):
    return {"choices": [{"delta": {"content": content}}]}


def test_only_text_is_an_arrival():
    stay = Stay(asked_at=1.0)
    stay.take({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, 2.0)
    stay.take(text("a"), 3.0)
    stay.take(text("b"), 3.5)
    stay.take({"choices": [], "usage": {"completion_tokens": 4}}, 4.0)
    assert (stay.to_first, stay.gaps, stay.n_tokens) == (2.0, [0.5], 4)


def test_an_error_in_the_stream_is_raised():
    with pytest.raises(ConfigError, match="broke off"):
        Stay(0.0).take({"error": {"message": "gone"}}, 1.0)


def test_the_digest_is_of_all_clients_together():
    stays = [Stay(0.0, [0.1, 0.2], 2), Stay(0.0, [0.3, 0.6, 0.7], 3)]
    got = digest("lead", 2, stays, 2.0)
    assert (got.tokens_per_second, got.n_answers) == (2.5, 2)
    assert (got.first_ms_p50, got.first_ms_p95, got.first_ms_max) == pytest.approx((100, 300, 300))
    assert (got.between_ms_p50, got.between_ms_p95) == pytest.approx((100, 300))


def test_tokens_that_were_cached_are_not_read():
    usage = {"completion_tokens": 1, "prompt_tokens": 50, "prompt_tokens_details": {"cached_tokens": 10}}
    stay = Stay(0.0)
    stay.take({"choices": [], "usage": usage}, 1.0)
    assert stay.n_read == 40


def test_prompts_are_read_until_the_first_text_of_the_last_answer():
    stays = [Stay(1.0, [2.0, 9.0], 2, n_read=30), Stay(1.5, [5.0, 6.0], 2, n_read=50), Stay(2.0)]
    assert digest("lead", 3, stays, 8.0).read_per_second == pytest.approx(80 / 4)


class Server:
    """Answers every request with two pieces of text."""

    def __init__(self):
        self.asked = []

    def __call__(self, request):
        self.asked.append(json.loads(request.content))
        events = [text("a"), text("b"), {"choices": [], "usage": {"completion_tokens": 2}}]
        lines = [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"]
        headers = {"content-type": "text/event-stream"}
        return httpx.Response(200, headers=headers, content="".join(lines).encode())


PROMPTS = [[Prompt("stories", "a", 1), Prompt("stories", "b", 2)], [Prompt("lists", "c", 3)]]


async def test_every_client_asks_all_of_its_prompts(monkeypatch):
    server, plain = Server(), httpx.AsyncClient
    monkeypatch.setattr(
        load.httpx,
        "AsyncClient",
        lambda **options: plain(base_url=options["base_url"], transport=httpx.MockTransport(server)),
    )
    got = await put_on("http://x", "lead", PROMPTS, Sampling(0.0, 2), iter(range(100)).__next__)
    assert sorted(body["messages"][0]["content"] for body in server.asked) == ["a", "b", "c"]
    assert all(body["stream"] and body["ignore_eos"] for body in server.asked)
    assert (got.n_clients, got.n_answers) == (2, 3)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 10), (0.95, 19), (1.0, 20), (0.0, 1)])
def test_percentiles_are_of_the_nearest_rank(share, expected):
    assert percentile(list(range(20, 0, -1)), share) == expected
