"""A fleet on Ray Serve, on this machine: two leads, two backs.

`make ray` installs Ray. Run these tests with `.venv/ray/bin/python -m pytest -m ray`. Without Ray they fail.
"""

import http.client
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import psutil
import pytest

from fleet.settings import FleetSettings
from lab.parts.processes import free_port
from lead.settings.keys import Role
from lead.settings.limits import RequestLimits
from shared.convert.grow import Shape, grow
from shared.model_files.builtin import builtin_target
from tests.lead.http.middleware.test_auth import KEYS, bearer
from tests.lead.test_doors import TO_ROUTES, who_may
from tests.real.client import TIMEOUT_S, chat, connect, get, post, stream, text_of

pytestmark = [
    pytest.mark.real,
    pytest.mark.ray,
    pytest.mark.timeout(1500),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]

PATIENT = {
    "RAY_AUTH_MODE": "disabled",  # on loopback
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "240",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "240",
    "RAY_raylet_start_wait_time_s": "240",
}
"""Settings for a machine that is busy with other things: it is slow, not broken."""
JSON = {"Content-Type": "application/json"}
WEBSOCKET = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}
NO_METHODS = {"PATCH", "PROPFIND", "WEBSOCKET"}
"""Methods of requests that a fleet does not pass on."""
LONG = "Zorvi the fox once met a quiet owl who lived near the river. " * 40


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    model = folder / "small.gguf"
    grow(builtin_target(), model, Shape(width=256, n_layers=6, n_heads=8, n_feed_forward=768), "f32")
    lead = f"--model {model} --alias fleet --threads 1 --cache-type-k f32 --cache-type-v f32 --ctx-size 8192"
    lead += " --max-restarts 0"  # a request is given up as soon as an engine dies of it
    return {"lead": lead, "back": "--threads 1", "slots": 4, "backs": 2, "min_leads": 2, "move_seconds": 2.0}


@pytest.fixture(scope="module")
def fleet(settings):
    """The URL of a running fleet."""
    import ray  # noqa: PLC0415 - not installed where the other tests run
    from ray import serve  # noqa: PLC0415

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
    from ray import serve  # noqa: PLC0415

    serve.run(app_of(settings, **changes))


def app_of(settings, **changes):
    from fleet.app import app  # noqa: PLC0415 - imports Ray

    return app(FleetSettings(**settings | changes))


def ask(url, **fields):
    """The response to a chat request."""
    return post(url, chat(model="fleet", **fields))


def children(program):
    """The fleet's child processes of a program: leads by their ports, backs by their names."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if not command or Path(command[0]).parent != Path(sys.executable).parent:
            continue  # of other tests
        if command[2:4] == ["-m", "shared.python_child"] and command[5] == program:
            option = "--port" if program == "lead" else "--name"
            found[command[command.index(option) + 1]] = process
    return found


def lead_children():
    """The leads' processes by their URLs."""
    return {f"http://127.0.0.1:{port}": process for port, process in children("lead").items()}


@contextmanager
def clients_that_ask(url, n_clients, n_tokens):
    """Counts the outcomes of the clients' answers until the context ends. Each answer is read whole."""
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
    return get(url, "/loads")["loads"][0]["num_running_reqs"]


def engine_of(lead):
    """The engine's process of a lead process."""
    (engine,) = (each for each in lead.children() if "lead.engine" in each.cmdline())
    return engine


def error_of(response):
    """The status and the error of a response."""
    return response.status_code, response.json()["error"]


def placed():
    from ray import serve  # noqa: PLC0415

    return serve.get_deployment_handle("BackPool", "default").placed.remote().result()


def test_the_text_is_that_of_a_direct_request_streamed_or_not(fleet):
    direct = text_of(ask(next(iter(lead_children())), max_tokens=20))
    with stream(fleet, model="fleet", max_tokens=20) as answer:
        reply = answer.rest()
    assert text_of(ask(fleet, max_tokens=20)) == reply.text == direct
    assert (reply.done, reply.n_generated) == (True, 20)


def test_a_client_that_leaves_frees_its_slot(fleet):
    with stream(fleet, model="fleet", max_tokens=2000) as answer:
        answer.until(lambda reply: reply.text)
    until(lambda: not any(n_running(url) for url in lead_children()))


def test_conversations_stay_where_their_prefix_is(fleet):
    for subject in ("A baker.", "Ships, for once!", "Of cabbages.", "A fox."):
        messages = [{"role": "user", "content": f"{subject} {LONG}"}]
        first = ask(fleet, messages=messages, max_tokens=4)
        messages += [
            {"role": "assistant", "content": text_of(first)},
            {"role": "user", "content": "And then?"},
        ]
        usage = ask(fleet, messages=messages, max_tokens=4).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] > 0.9 * first.json()["usage"]["prompt_tokens"]


def test_a_body_that_no_lead_would_take_is_refused_before_it_is_parsed(fleet):
    """The largest bodies of FleetSettings, whose values take much more memory than text: 64 MiB took 2 GB."""
    with connect(fleet) as http:
        body = b'{"prompt":[' + b"[]," * (22 << 20) + b"[]]}"
        status, error = error_of(http.post("/v1/completions", content=body, headers=JSON))
        assert (status, error["type"]) == (413, "invalid_request_error")
        body = b'{"prompt":[' + b"[]," * (RequestLimits().max_body_bytes // 3 - 8) + b"[]]}"
        status, error = error_of(http.post("/v1/completions", content=body, headers=JSON))
        assert (status, "objects and arrays" in error["message"]) == (400, True)
    assert text_of(ask(fleet, max_tokens=2))


@pytest.mark.parametrize(
    "body", [b"[" * 200_000, b'{"messages":' * 100_000, b'{"prompt": "' + b"\\ud800" * 600]
)
def test_a_body_that_cannot_be_parsed_is_the_leads_to_refuse(fleet, body):
    with connect(fleet) as http:
        status, error = error_of(http.post("/v1/chat/completions", content=body, headers=JSON))
    assert (status, error["type"]) == (400, "invalid_request_error")


def test_a_page_that_points_its_own_name_here_is_refused(fleet):
    with connect(fleet) as http:
        refused = http.get("/v1/models", headers={"Host": "page.example"})
        assert http.get("/v1/models").status_code == 200
    assert error_of(refused)[0] == 403
    assert "page.example" in error_of(refused)[1]["message"]


def test_a_client_that_asks_for_no_compression_gets_none(fleet):
    url = httpx.URL(fleet)
    connection = http.client.HTTPConnection(url.host, url.port, timeout=TIMEOUT_S)
    connection.request("GET", "/v1/speculation/vocabulary", headers={"Accept-Encoding": "identity"})
    plain = connection.getresponse()
    plain_bytes = plain.read()
    connection.putrequest("GET", "/v1/speculation/vocabulary", skip_accept_encoding=True)
    connection.endheaders()
    response = connection.getresponse()
    assert (response.getheader("content-encoding"), response.read() == plain_bytes) == (None, True)
    connection.close()


@pytest.mark.parametrize(("path", "status"), [("/v1/models", 200), ("/x/../v1/models", 404)])
def test_headers_and_path_come_to_a_lead_as_they_were_sent(fleet, path, status):
    url = httpx.URL(fleet)
    connection = http.client.HTTPConnection(url.host, url.port, timeout=TIMEOUT_S)
    connection.request("GET", path, headers={"X-Title": "café".encode()})
    assert connection.getresponse().status == status
    connection.close()


def test_a_fleet_with_a_lead_is_healthy(fleet):
    assert get(fleet, "/health") == get(fleet, "/v1/health") == {"status": "ok"}


def test_a_fleet_whose_leads_load_says_so_at_once(fleet, settings, tmp_path):
    from ray import serve  # noqa: PLC0415

    model = tmp_path / "endless.gguf"
    os.mkfifo(model)  # who reads it waits for who writes it
    loading = app_of(settings, lead=f"--model {model}", backs=0, min_leads=1, drain_seconds=0)
    target = serve.RunTarget(loading, name="loading", route_prefix="/loading")
    serve.run_many([target], wait_for_applications_running=False)
    try:
        with connect(fleet) as http:
            until(lambda: http.get("/loading/health").status_code != 404)
            status, error = error_of(http.get("/loading/health"))
    finally:
        serve.delete("loading")
    assert (status, error["type"]) == (503, "unavailable_error")


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


def test_a_request_that_kills_an_engine_is_not_sent_to_another_lead(fleet):
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask, fleet, max_tokens=7000)
        until(lambda: any(n_running(url) for url in lead_children()))
        (busy,) = (process for url, process in lead_children().items() if n_running(url))
        engine_of(busy).kill()
        status, error = error_of(asking.result())
    assert (status, "the engine died" in error["message"]) == (503, True)
    assert not any(n_running(url) for url in lead_children())


def test_a_killed_lead_costs_its_running_streams_and_nothing_else(fleet):
    with clients_that_ask(fleet, 4, 60) as outcomes:
        until(lambda: outcomes["answered"] >= 4)
        killed = next(iter(lead_children().values()))
        os.kill(killed.pid, signal.SIGKILL)
        n_before = outcomes["answered"]
        until(lambda: outcomes["answered"] >= n_before + 12)
        until(lambda: len(lead_children()) == 2)
    assert outcomes.total() - outcomes["answered"] <= 4, outcomes
    assert text_of(ask(fleet, max_tokens=4))


def test_a_rolling_update_under_load_loses_nothing(fleet, settings):
    before = set(lead_children())
    with clients_that_ask(fleet, 4, 60) as outcomes:
        until(lambda: outcomes["answered"] >= 4)
        deploy(settings, version="2")
        until(lambda: len(lead_children()) == 2 and not before & set(lead_children()))
        n_before = outcomes["answered"]
        until(lambda: outcomes["answered"] >= n_before + 4)
    assert set(outcomes) == {"answered"}


def answered(url, request, headers):
    """The status of the answer to a request that is sent unchanged. `httpx` would change its path."""
    method, path, query, content = request
    if method == "WEBSOCKET":
        method, headers, content = "GET", headers | WEBSOCKET, None
    if content is not None:
        headers, content = headers | JSON, json.dumps(content)
    target = quote(path, safe="/%") + ("?" + query.decode() if query else "")
    connection = http.client.HTTPConnection(httpx.URL(url).host, httpx.URL(url).port, timeout=TIMEOUT_S)
    try:
        connection.request(method, target, content, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_nothing_gets_past_the_door_of_a_fleet_without_a_right_key(fleet, settings, tmp_path):
    keys_file, key_file = tmp_path / "keys", tmp_path / "key"
    keys_file.write_text("".join(f"{role.value} x {secret}\n" for role, secret in KEYS.items()))
    key_file.write_text("the-fleets-own-key")
    lead = f"{settings['lead']} --keys-file {keys_file} --metrics"
    deploy(settings, lead=lead, key_file=key_file, backs=0, min_leads=1, version="keys")
    admin = bearer(KEYS[Role.ADMIN])
    until(lambda: len(lead_children()) == 1 and answered(fleet, ("GET", "/props", b"", None), admin) == 200)
    (url,) = lead_children()

    def state():
        key = KEYS[Role.ADMIN]
        known = get(url, "/v1/speculation", key=key)["totals"], get(url, "/loads", key=key)["loads"]
        return *known, *(get(url, path, key=key) for path in ("/slots", "/v1/members"))

    before = state()
    for headers, role in [({}, None), (bearer("wrong"), None), (bearer(KEYS[Role.BACK]), Role.BACK)]:
        for request in TO_ROUTES:
            allowed, status = who_may(*request[:2]), answered(fleet, request, headers)
            if role not in allowed and request[0] not in NO_METHODS:
                assert status in ({403} if role else {401}), (request, role)
            assert status < 500, (request, role)
    assert state() == before
