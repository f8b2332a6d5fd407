"""Several models behind one address, with real processes: started on demand, switched, killed."""

import asyncio
import contextlib
import json
import random
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from lab.parts.processes import Program
from shared.model_files.builtin import builtin_draft
from tests.real.processes import BACK, READY, run_to_end

pytestmark = pytest.mark.real

NAMES = ("blue", "green", "red")
TWO_OF_THREE_MIB = 900
"""Memory for two of three models. Each model takes a bit more than 300 MiB, most of it for its processes."""
ENOUGH = 240.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_model):
    folder = tmp_path_factory.mktemp("house")
    for seed, name in enumerate(NAMES, 1):
        shutil.copy(tiny_model("llama", seed), folder / f"{name}.gguf")
    (folder / "models.toml").write_text(
        '[defaults]\nctx-size = 512\nparallel = 2\ncalibrate = false\ncache-ram = 0\n[red]\nalias = "rouge"\n'
    )
    return folder


@contextlib.contextmanager
def router(folder, *arguments):
    """(program, url) of a router."""
    with Program("lead", "--port", "0", "--models-dir", str(folder), "--threads", "1", *arguments) as program:
        yield program, program.wait_for(r"listening on (http://\S+), with 3 models").group(1)


@pytest.fixture(scope="module")
def house(folder):
    """A router for tests that unload nothing for good."""
    with router(folder, "--models-memory", str(TWO_OF_THREE_MIB)) as running:
        yield running


def question(model, **fields):
    return {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8} | fields


def ollamas_question(model, n_tokens=8, **fields):
    messages, options = question(model)["messages"], {"num_predict": n_tokens}
    return {"model": model, "messages": messages, "options": options, "stream": False} | fields


def states(url):
    records = httpx.get(f"{url}/v1/models").json()["data"]
    return {record["id"]: record["status"]["value"] for record in records}


def model_processes(program):
    """The process ids of models that are loaded or loading, without the process that waits for a model."""
    children = psutil.Process(program.process.pid).children()
    found = []
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            if "lead.router.model_lead" in child.cmdline() and child.children():
                found.append(child.pid)
    return found


def test_a_request_starts_its_model_and_at_most_as_many_stay_as_memory_holds(house):
    _, url = house
    for name in (*NAMES, "rouge"):
        answer = httpx.post(f"{url}/v1/chat/completions", json=question(name), timeout=ENOUGH)
        assert answer.status_code == 200
        assert answer.json()["model"] == name.replace("rouge", "red")
    assert list(states(url).values()).count("loaded") == 2
    assert states(url)["red"] == "loaded"


async def ask(client, rng, lost, interrupted):
    """Send one request of any API, whole or streamed. Adds to `lost` if the answer is wrong or missing."""
    name, kind = rng.choice(NAMES), rng.choice(["chat", "stream", "messages", "ollama", "completion"])
    n = rng.randrange(1, 40)
    path, body = {
        "chat": ("/v1/chat/completions", question(name, max_tokens=n)),
        "stream": ("/v1/chat/completions", question(name, max_tokens=n, stream=True)),
        "messages": ("/v1/messages", question(name, max_tokens=n)),
        "ollama": ("/api/chat", ollamas_question(name, n)),
        "completion": ("/completion", {"model": name, "prompt": "Once", "n_predict": n}),
    }[kind]
    answer = await client.post(path, json=body)
    if answer.status_code != 200:
        lost.append((kind, answer.status_code, answer.text))
    elif kind == "stream":
        if not answer.text.endswith("data: [DONE]\n\n"):
            told = json.loads(answer.text.rstrip().rpartition("data: ")[2])
            (interrupted if "error" in told else lost).append((kind, answer.text))
    else:
        json.loads(answer.text)


def kill_one(program, rng, killed):
    """Kill any model, while other clients wait for it, read its answer, or use another model."""
    if found := model_processes(program):
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(rng.choice(found)).send_signal(signal.SIGKILL)
            killed.append(1)


async def ask_and_kill(program, url, n_requests, n_answers_per_kill, seed=1):
    """(lost answers, streams that broke off with an error, killed processes).

    Processes are killed by the number of answers: a slow machine kills no more than a fast machine. With
    frequent
    kills, a request whose model is killed five times is given up.
    """
    rng = random.Random(seed)
    lost, interrupted, killed = [], [], []
    turns = asyncio.Semaphore(12)
    async with httpx.AsyncClient(base_url=url, timeout=ENOUGH) as client:

        async def take_turn(number):
            async with turns:
                await ask(client, rng, lost, interrupted)
                if number % n_answers_per_kill == 0:
                    kill_one(program, rng, killed)

        await asyncio.gather(*(take_turn(number) for number in range(n_requests)))
    return lost, interrupted, len(killed)


@pytest.mark.parametrize(
    ("n_requests", "n_answers_per_kill"), [(16, 4), pytest.param(200, 16, marks=pytest.mark.models)]
)
async def test_no_answer_is_lost_when_models_are_killed(house, n_requests, n_answers_per_kill):
    program, url = house
    lost, interrupted, n_killed = await ask_and_kill(program, url, n_requests, n_answers_per_kill)
    print(f"{n_requests} requests, {n_killed} killed, {len(interrupted)} streams broke off")  # noqa: T201
    assert lost == [], f"{lost}\n{program.log}"
    assert n_killed


def test_a_model_can_be_unloaded_while_it_is_being_loaded(house):
    _, url = house
    with ThreadPoolExecutor(1) as pool:
        httpx.post(f"{url}/models/unload", json={"model": "blue"})
        asking = pool.submit(httpx.post, f"{url}/v1/chat/completions", json=question("blue"), timeout=ENOUGH)
        until(lambda: states(url)["blue"] == "loading" or asking.done())
        assert httpx.post(f"{url}/models/unload", json={"model": "blue"}).json() == {"success": True}
        assert asking.result().status_code == 200


def until(condition):
    deadline = time.monotonic() + ENOUGH
    while not condition():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.01)


def test_a_back_follows_the_model_that_is_awake(folder):
    with router(folder, "--models-max", "1") as (program, url), start_back_of(url) as back:
        for name in ("blue", "red"):
            since = back.n_lines()
            httpx.post(f"{url}/v1/chat/completions", json=question(name), timeout=ENOUGH)
            back.wait_for(r"drafting for ", since=since)
            (told,) = httpx.get(f"{url}/v1/speculation?model={name}").json()["backs"]
            assert told["name"] == "desk"
        program.wait_for("red: .* back desk .*joined")


def start_back_of(url):
    return Program("back", "--lead", url, "--name", "desk", *BACK)


def test_the_page_chooses_a_model(folder, browser):
    with router(folder) as (_, url), browser.new_page() as page:
        page.set_default_timeout(1000 * ENOUGH)
        page.goto(url)
        page.get_by_label("Model", exact=True).select_option("green")
        page.get_by_role("button", name="Settings").click()
        page.get_by_label("Maximum tokens").fill("4")
        page.get_by_role("button", name="Save").click()
        page.get_by_label("Your question").fill("Hi")
        page.keyboard.press("Enter")
        page.get_by_text("ready", exact=True).wait_for()
        assert states(url) == {"blue": "unloaded", "green": "loaded", "red": "unloaded"}


def test_the_name_of_a_file_cannot_act_on_the_terminal(tmp_path):
    """It cannot look like a line of the log either."""
    shutil.copy(builtin_draft(), tmp_path / "red\x1b[31m\n12:00:00 lead ERROR: \u202e.gguf")
    options = ("--models-dir", str(tmp_path), "--threads", "1", "--ctx-size", "512", "--no-calibrate")
    with Program("lead", "--port", "0", *options) as program:
        url = program.wait_for(r"listening on (http://\S+), with 1 model:").group(1)
        (name,) = states(url)
        body = {"model": name, "prompt": "Hi", "max_tokens": 1}
        assert httpx.post(f"{url}/v1/completions", json=body, timeout=ENOUGH).status_code == 200
        program.wait_for(f"red.*{READY}")
    assert not {"\x1b", "\u202e"} & set(program.log)
    assert not [line for line in program.log.splitlines() if line.startswith("12:00:00")]
    listed = run_to_end("lead", "models", "--models-dir", str(tmp_path)).stdout
    assert not {"\x1b", "\u202e"} & set(listed)
    assert "red" in listed
