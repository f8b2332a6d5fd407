import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench import peer
from shared.errors import ConfigError

DRAFT = Path("d.gguf")
SERVER = f"""#!{sys.executable}
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
given = dict(zip(sys.argv[1:], sys.argv[2:]))
if "--help" in sys.argv:
    sys.exit("--spec-draft-n-max N --spec-type none,draft-simple")

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply({{}})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        rates = given.get("--spec-synth-rates", "0").split(",")
        self.reply({{"timings": {{"predicted_per_second": asked["n_predict"] * float(rates[-1])}}}})

    def reply(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

HTTPServer(("127.0.0.1", int(given["--port"])), Handler).serve_forever()
"""
"""A llama-server that says with which rates it was started."""


def test_newer_versions_have_to_be_told_to_use_the_draft_model():
    arguments = peer.draft_arguments("--spec-draft-n-max N  --spec-type none,draft-simple", DRAFT, 5)
    assert arguments == [
        *("-md", "d.gguf", "--spec-draft-n-max", "5", "--spec-draft-n-min", "0"),
        *("--spec-type", "draft-simple"),
    ]


def test_older_versions_have_other_names():
    arguments = peer.draft_arguments("--draft-max N", DRAFT, 3)
    assert arguments == ["-md", "d.gguf", "--draft-max", "3", "--draft-min", "0"]


@pytest.mark.parametrize("option", ["llama-server", "llama-server=/no/such", "vllm=/bin/sh", ""])
def test_anything_else_is_refused(option):
    with pytest.raises(ConfigError, match="write llama-server=PATH"):
        peer.find(option)


def test_a_server_that_ends_at_once_is_reported_with_its_words(tmp_path):
    binary = tmp_path / "llama-server"
    binary.write_text("#!/bin/sh\necho no such model >&2\nexit 1\n")
    binary.chmod(0o755)
    with pytest.raises(ConfigError, match="no such model"):
        peer.Peer(binary, Path("t.gguf"), "0")


def test_each_server_accepts_a_token_as_often_as_all_up_to_it_are_right(tmp_path):
    binary = tmp_path / "llama-server"
    binary.write_text(SERVER)
    binary.chmod(0o755)
    core = str(min(os.sched_getaffinity(0)))
    with ExitStack() as stack:
        peers = peer.start_peers(stack, binary, Path("t.gguf"), DRAFT, core, depths=[1, 3], rate=0.8)
        rates = {depth: each.tokens_per_second(10) for depth, each in peers.items()}
    assert rates == pytest.approx({0: 0, 1: 8, 3: 5.12})
