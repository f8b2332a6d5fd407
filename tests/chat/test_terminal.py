import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.chat.fakes import end_events, text_event
from tests.http_server import HttpServer, QuietHandler

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]

ROOT = Path(__file__).parent.parent.parent
WAIT_S = 240


class Lead(QuietHandler):
    """A lead whose answer depends on the question. Most answers are Markdown."""

    def do_GET(self):
        places = {
            "/v1/models": {"data": [{"id": "spec-demo"}]},
            "/v1/speculation": {"backs": [{"name": "attic"}]},
        }
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(places[self.path]).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for part in self.parts(body["messages"][-1]["content"]):
            try:
                self.wfile.write(part)
            except OSError:
                self.server.hung_up.set()
                return

    def parts(self, question):
        if question == "endless":
            return iter(lambda: time.sleep(0.01) or text_event("so on, "), None)
        if question == "held":
            return self.held()
        return [
            text_event("**Hello**", (" you", "attic")),
            text_event("\n\n- one\n- two\n"),
            *end_events(2, 2, 1),
        ]

    def held(self):
        yield text_event("Well, ")
        assert self.server.let_go.wait(WAIT_S)
        yield from [text_event("yes."), *end_events()]


@pytest.fixture
def server():
    with HttpServer(Lead) as server:
        server.hung_up, server.let_go = threading.Event(), threading.Event()
        yield server


class Tmux:
    def __init__(self, socket):
        self._socket = socket

    def __call__(self, *arguments):
        command = ["tmux", "-S", str(self._socket), "-f", "/dev/null", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def keys(self, *keys):
        self("send-keys", *keys)

    def screen(self):
        """The text of the screen, including rows that have scrolled away."""
        return self("capture-pane", "-p", "-S", "-")

    def see(self, text):
        """The screen once `text` is on it."""
        until = time.monotonic() + WAIT_S
        while text not in (screen := self.screen()):
            assert time.monotonic() < until, f"{text!r} did not come:\n{screen}"
            time.sleep(0.05)
        return screen


@pytest.fixture
def tmux(server, tmp_path):
    tmux = Tmux(tmp_path / "tmux")
    environment = {"XDG_DATA_HOME": tmp_path, "XDG_STATE_HOME": tmp_path, "TMUX": "", "LC_ALL": "C.UTF-8"}
    settings = [part for name, value in environment.items() for part in ("-e", f"{name}={value}")]
    # The shell shows the exit status: tmux may miss that a program has ended.
    chat = f"{sys.executable} -m chat --lead 127.0.0.1:{server.server_port}"
    shell = f"trap : INT; {chat}; echo exit status $?; exec cat"
    tmux("new-session", "-d", "-x", "64", "-y", "16", "-c", str(ROOT), *settings, shell)
    try:
        tmux.see("1 back · :help")
        yield tmux
    finally:
        tmux("kill-server")


def test_an_answer_is_rendered_with_a_legend_and_a_status_line(tmux):
    tmux.keys("Hi", "Enter")
    screen = tmux.see("2 tokens · 10.0 tokens/s · 50% accepted · 1 back · :help")
    assert "> Hi\n\nHello you\n\n • one\n • two\n\n" in screen
    assert "2 tokens · 10.0 tokens/s · 1 of 2 draft tokens accepted (50%)\n■ attic 1\n" in screen


def test_ctrl_c_stops_an_answer_and_ctrl_d_ends_the_program(tmux, server):
    tmux.keys("endless", "Enter")
    tmux.see("so on, so on")
    tmux.keys("C-c")
    tmux.see("stopped early")
    assert server.hung_up.wait(WAIT_S)
    tmux.see("1 back · :help")
    tmux.keys("C-d")
    tmux.see("exit status 0")


def test_text_typed_during_an_answer_is_kept_for_the_next_prompt(tmux, server):
    tmux.keys("held", "Enter")
    tmux.see("Well,")
    tmux.keys("and then?")
    server.let_go.set()
    assert "\nWell, yes.\n" in tmux.see("> and then?")
