"""A llama-server that says with which rates it was started."""

import os
import sys
from pathlib import Path

import pytest

from bench.synthetic_peer import SyntheticPeers

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


def test_each_server_accepts_a_token_as_often_as_all_up_to_it_are_right(tmp_path):
    binary = tmp_path / "llama-server"
    binary.write_text(SERVER)
    binary.chmod(0o755)
    core = str(min(os.sched_getaffinity(0)))
    with SyntheticPeers(binary, Path("t.gguf"), Path("d.gguf"), core, rate=0.8, depths=[1, 3]) as peers:
        assert peers.answer(10) == pytest.approx({0: 0, 1: 8, 3: 5.12})
