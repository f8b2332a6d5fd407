"""A fleet on Ray Serve, on this machine: two leads, two backs. Skipped where the extra `ray` is missing.

Slow: Ray takes half a minute to start on an idle machine.
"""

import os
import signal
import threading
import time
from collections import Counter
from contextlib import contextmanager

import httpx
import psutil
import pytest

from bench.processes import free_port
from shared.models.builtin import builtin_target
from shared.models.grow import Shape, grow
from tests.real.client import TIMEOUT_S, Stream, chat

ray = pytest.importorskip("ray")
serve = pytest.importorskip("ray.serve")
FLEET_APP = pytest.importorskip("fleet.app")

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(1500),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]

PATIENT = {
    "RAY_AUTH_MODE": "disabled",  # on loopback
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "240",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "240",
    "RAY_raylet_start_wait_time_s": "240",
}
"""A machine that is busy with other things is slow, not broken."""
LONG = "Zorvi the fox once met a quiet owl who lived near the river. " * 40


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    model = folder / "small.gguf"
    grow(builtin_target(), model, Shape(width=256, n_layers=6, n_heads=8, n_feed_forward=768), "f32")
    lead = f"--model {model} --alias fleet --threads 1 --cache-type-k f32 --cache-type-v f32 --ctx-size 8192"
    return {"lead": lead, "back": "--threads 1", "slots": 4, "backs": 2, "min_leads": 2, "move_seconds": 2.0}


@pytest.fixture(scope="module")
def fleet(settings):
    """The URL of a running fleet."""
    port = free_port()
    os.environ |= PATIENT
    ray.init(num_cpus=8, include_dashboard=False, object_store_memory=80_000_000, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        deploy(settings)
        yield f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()
        ray.shutdown()


def deploy(settings, **changes):
    app = FLEET_APP.app(FLEET_APP.FleetSettings(**settings | changes))
    serve.run(app)


def client(url):
    return httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False)


def ask(url, **fields):
    with client(url) as http:
        return http.post("/v1/chat/completions", json=chat(model="fleet", **fields))


def children(program):
    """The fleet's processes of a program: leads by their ports, backs by their names."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if command[1:4] == ["-m", "fleet.child", program]:
            option = "--port" if program == "lead" else "--name"
            found[command[command.index(option) + 1]] = process
    return found


def lead_children():
    """The leads' processes by their URLs."""
    return {f"http://127.0.0.1:{port}": process for port, process in children("lead").items()}


@contextmanager
def clients_that_ask(url, n_clients, n_tokens):
    """Counts what happens to their answers, each of which is read whole, until the context ends."""
    outcomes, stopping = Counter(), threading.Event()

    def run():
        while not stopping.is_set():
            try:
                response = ask(url, max_tokens=n_tokens)
                outcome = "answered" if response.is_success else f"{response.status_code} {response.text}"
            except httpx.HTTPError as error:
                outcome = repr(error)
            outcomes[outcome] += 1

    threads = [threading.Thread(target=run) for _ in range(n_clients)]
    for thread in threads:
        thread.start()
    try:
        yield outcomes
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def until(condition, seconds=240.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.5)


def n_running(url):
    with client(url) as http:
        return http.get("/loads").json()["loads"][0]["num_running_reqs"]


def placed():
    return serve.get_deployment_handle("BackPool", "default").placed.remote().result()


def text(response):
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]["content"]


def test_the_text_is_that_of_a_direct_request_streamed_or_not(fleet):
    direct = text(ask(next(iter(lead_children())), max_tokens=20))
    body = chat(model="fleet", max_tokens=20, stream=True, stream_options={"include_usage": True})
    with client(fleet) as http, http.stream("POST", "/v1/chat/completions", json=body) as response:
        reply = Stream(response).rest()
    assert text(ask(fleet, max_tokens=20)) == reply.text == direct
    assert (reply.done, reply.n_generated) == (True, 20)


def test_a_client_that_leaves_frees_its_slot(fleet):
    body = chat(model="fleet", max_tokens=2000, stream=True)
    with client(fleet) as http, http.stream("POST", "/v1/chat/completions", json=body) as response:
        Stream(response).until(lambda reply: reply.text)
    until(lambda: not any(n_running(url) for url in lead_children()))


def test_conversations_stay_where_their_prefix_is(fleet):
    for subject in ("A baker.", "Ships, for once!", "Of cabbages.", "A fox."):
        messages = [{"role": "user", "content": f"{subject} {LONG}"}]
        first = ask(fleet, messages=messages, max_tokens=4)
        messages += [{"role": "assistant", "content": text(first)}, {"role": "user", "content": "And then?"}]
        usage = ask(fleet, messages=messages, max_tokens=4).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] > 0.9 * first.json()["usage"]["prompt_tokens"]


@pytest.mark.usefixtures("fleet")
def test_backs_move_to_the_lead_that_has_work():
    until(lambda: None not in placed().values())
    busy = next(url for url in lead_children() if set(placed().values()) != {url})
    with clients_that_ask(busy, 4, 200) as outcomes:
        until(lambda: set(placed().values()) == {busy})
    assert set(outcomes) <= {"answered"}


@pytest.mark.usefixtures("fleet")
def test_a_back_that_is_killed_drafts_again():
    killed = children("back")["back-0"]
    os.kill(killed.pid, signal.SIGKILL)
    until(lambda: children("back").get("back-0", killed).pid != killed.pid)


def test_a_killed_lead_costs_its_running_streams_and_nothing_else(fleet):
    with clients_that_ask(fleet, 4, 60) as outcomes:
        until(lambda: outcomes["answered"] >= 4)
        killed = next(iter(lead_children().values()))
        os.kill(killed.pid, signal.SIGKILL)
        n_before = outcomes["answered"]
        until(lambda: outcomes["answered"] >= n_before + 12)
        until(lambda: len(lead_children()) == 2)
    assert outcomes.total() - outcomes["answered"] <= 4, outcomes
    assert text(ask(fleet, max_tokens=4))


def test_a_rolling_update_under_load_loses_nothing(fleet, settings):
    before = set(lead_children())
    with clients_that_ask(fleet, 4, 60) as outcomes:
        until(lambda: outcomes["answered"] >= 4)
        deploy(settings, version="2")
        until(lambda: len(lead_children()) == 2 and not before & set(lead_children()))
        n_before = outcomes["answered"]
        until(lambda: outcomes["answered"] >= n_before + 4)
    assert set(outcomes) == {"answered"}
