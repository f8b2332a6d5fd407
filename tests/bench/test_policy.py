import json

import httpx
import pytest

from bench.policy import ADAPTIVE, Policy, choose, counters, grown
from shared.errors import ConfigError


def client(handler):
    return httpx.Client(base_url="http://lead", transport=httpx.MockTransport(handler))


def test_the_policy_and_its_depth_are_put():
    asked = []

    def handle(request):
        asked.append((request.method, request.url.path, json.loads(request.content)))
        return httpx.Response(200)

    with client(handle) as http:
        assert choose(http, Policy("sync", 4))
        assert choose(http, ADAPTIVE)
    assert asked == [
        ("PUT", "/v1/speculation", {"policy": "sync", "depth": 4}),
        ("PUT", "/v1/speculation", {"policy": "adaptive"}),
    ]


@pytest.mark.parametrize("status", [404, 405])
def test_a_lead_that_cannot_be_told_says_so(status):
    with client(lambda _: httpx.Response(status)) as http:
        assert not choose(http, ADAPTIVE)


def test_a_policy_that_is_refused_is_an_error():
    with client(lambda _: httpx.Response(400, text="no")) as http, pytest.raises(ConfigError, match="no"):
        choose(http, Policy("bold"))


def test_counters_are_the_planners():
    with client(lambda _: httpx.Response(200, json={"backs": [], "planner": {"n_steps": 3}})) as http:
        assert counters(http) == {"n_steps": 3}


def test_a_lead_without_a_planner_has_no_counters():
    with client(lambda _: httpx.Response(200, json={"backs": []})) as http:
        assert counters(http) == {}


def test_waiting_is_a_difference():
    assert grown({"wait_seconds": 1.0}, {"wait_seconds": 1.5}, "wait_seconds") == 0.5
    assert grown({}, {"wait_seconds": 1.5}, "wait_seconds") == 1.5


def test_waiting_is_unknown_where_the_lead_does_not_say():
    assert grown({}, {}, "wait_seconds") is None


def test_a_policy_is_written_with_its_depth():
    assert (str(Policy("sync", 4)), str(ADAPTIVE)) == ("sync 4", "adaptive")
