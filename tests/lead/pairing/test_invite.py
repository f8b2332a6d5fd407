"""`lead invite`: its request to a lead, and its output."""

import json
import re
import ssl

import pytest

from lead.cli import main
from shared.pairing.invitation import Invitation
from tests.http_server import HttpServer, QuietHandler

CODE = Invitation("back", b"s" * 12, b"f" * 16, ("10.0.0.1:5556",)).code()
PAGE = "https://10.0.0.1:5556/#join=AAAA"
PEM = ssl.DER_cert_to_PEM_cert(b"a certificate")
FOR_CHAT = {
    "command": f"chat --join {CODE}",
    "seconds": 600,
    "addresses": ["10.0.0.1:5556"],
    "role": "client",
    "page": PAGE,
    "certificate": PEM,
}


class Handler(QuietHandler):
    def _answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        key = self.headers.get("Authorization")
        self.server.asked.append((self.command, self.path, json.loads(body) if body else None, key))
        status, content = self.server.answers
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - http.server's names


@pytest.fixture
def lead():
    """Gives all requests the same answer, and records them."""
    with HttpServer(Handler) as server:
        server.asked = []
        server.answers = 200, {}
        yield server


@pytest.fixture
def run(lead, monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["lead", "invite", "--lead", lead.url, *arguments])
        main()
        return capsys.readouterr().out

    return run


def test_a_code_is_shown_with_the_command_that_uses_it(lead, run):
    made = {"command": f"back --join {CODE}", "seconds": 600, "addresses": ["10.0.0.1:5556"], "role": "back"}
    lead.answers = 200, made
    out = run("--open", "--address", "desk.lan")
    assert f"    back --join {CODE}" in out
    assert "chat --join" not in out
    assert "Run this back" in out
    assert "within 10 minutes" in out
    body = {"role": "back", "open": True, "addresses": ["desk.lan"], "nearby": False}
    assert lead.asked == [("POST", "/v1/invitations", body, None)]


def test_a_code_for_chat_is_asked_for_and_shown_as_one(lead, run):
    lead.answers = 200, FOR_CHAT
    out = run("--chat")
    assert f"    chat --join {CODE}" in out
    assert PAGE in out
    assert "https://10.0.0.1:5556/ca.crt" in out
    assert "back" not in out
    assert lead.asked[0][2]["role"] == "client"


def test_a_terminal_is_shown_a_qr_code_of_the_page(lead, run, monkeypatch):
    lead.answers = 200, FOR_CHAT
    assert "█" not in run("--chat")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "█" in run("--chat")
    assert "█" not in run("--chat", "--no-qr")


def test_a_program_is_given_lines_with_address_key_and_ca(lead, run):
    lead.answers = (
        200,
        {
            "name": "webui",
            "key": "the-key",
            "addresses": ["10.0.0.1:5556", "10.0.0.2:5556"],
            "certificate": PEM,
            "data": [{"id": "smollm2"}],
        },
    )
    out = run("--app", "--name", "webui", "--open")
    assert "base URL  https://10.0.0.1:5556/v1" in out
    assert "lead invite --revoke webui" in out
    assert "curl --cacert lead-ca.crt https://10.0.0.1:5556/v1/models" in out
    for program in ("Open WebUI", "Continue", "Claude Code", "llm -m smollm2"):
        assert program in out
    assert "has changed the lead's CA certificate" not in out
    lead.answers[1]["certificate_changed"] = True
    assert "has changed the lead's CA certificate" in run("--app", "--address", "desk.example.org")
    body = {"name": "webui", "open": True, "addresses": []}
    assert lead.asked[0] == ("POST", "/v1/members", body, None)
    assert lead.asked[1][:2] == ("GET", "/v1/models")


def test_members_are_listed(lead, run):
    members = [{"name": "laptop [/b]", "role": "back", "joined_at": 1e9}]
    lead.answers = 200, {"open": True, "addresses": ["a:1"], "members": members, "invited": 2, "refused": 3}
    out = run("--list")
    assert re.search(r"laptop \[/b\] +back +2001-09-0", out)
    assert "open at a:1; 2 unused codes, 3 refused codes" in out


def test_a_machine_is_revoked(lead, run):
    assert run("--revoke", "a b") == "a b no longer has access\n"
    assert lead.asked[0][:2] == ("DELETE", "/v1/members?name=a+b")


def test_the_door_is_closed(lead, run):
    run("--close")
    assert lead.asked[0][:2] == ("DELETE", "/v1/invitations")


def test_the_admins_key_is_sent(lead, run, tmp_path):
    (tmp_path / "key").write_text("secret\n")
    run("--close", "--admin-key-file", str(tmp_path / "key"))
    assert lead.asked[0][3] == "Bearer secret"


@pytest.mark.parametrize(
    ("status", "content", "said"),
    [
        (400, {"error": {"message": "use --open"}}, "lead invite: use --open"),
        (401, {}, "lead invite: this lead needs an admin key. Set --admin-key-file"),
        (
            200,
            {},
            "does not answer like a lead of this version. Check the address, or update llama-duo there",
        ),
        (
            200,
            [],
            "does not answer like a lead of this version. Check the address, or update llama-duo there",
        ),
        (500, {}, "lead invite: HTTP 500"),
        (502, {"error": "no upstream"}, "lead invite: no upstream"),  # of a proxy
    ],
)
def test_a_refusal_is_a_sentence(lead, run, status, content, said):
    lead.answers = status, content
    with pytest.raises(SystemExit, match=re.escape(said)):
        run()


def test_what_a_lead_says_cannot_act_on_the_terminal(lead, run):
    code = {"command": f"{CODE}\x1b]0;x\x07", "seconds": 600, "addresses": ["\x1b[2Jhere"], "role": "back"}
    lead.answers = 200, code
    assert "\x1b" not in run()
    member = {"name": "desk\x9b1m\u202e", "role": "back", "joined_at": 1}
    lead.answers = 200, {"open": True, "addresses": [], "members": [member], "invited": 0, "refused": 0}
    assert not {"\x9b", "\u202e"} & set(run("--list"))


def test_no_proxy_sees_the_admins_key(lead, run, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    run("--close", "--admin-key", "secret")
    assert lead.asked[0][3] == "Bearer secret"


def test_a_lead_that_is_not_there_is_a_sentence(monkeypatch):
    monkeypatch.setattr("sys.argv", ["lead", "invite", "--lead", "http://127.0.0.1:9"])
    with pytest.raises(SystemExit, match=r"no lead answers at http://127\.0\.0\.1:9"):
        main()
