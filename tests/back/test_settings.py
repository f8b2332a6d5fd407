from pathlib import Path

import pytest
from pydantic import SecretStr

from back import settings as module
from back.settings import BackSettings
from shared import cpus
from shared.pairing.discovery import FoundLead, NoLeadError
from shared.pairing.joined_lead import JoinedLead
from shared.settings.model_options import MAX_SLOTS


def settings(*arguments):
    return BackSettings.from_command_line(list(arguments))


@pytest.mark.parametrize(
    ("lead", "url"),
    [
        ("http://host:5555", "ws://host:5555/v1/speculation"),
        ("host:5555", "ws://host:5555/v1/speculation"),
        ("localhost:5555", "ws://localhost:5555/v1/speculation"),
        ("192.168.1.20:5555", "ws://192.168.1.20:5555/v1/speculation"),
        ("http://host:5555/v1/", "ws://host:5555/v1/speculation"),
        ("https://host/", "wss://host/v1/speculation"),
        ("http://[::1]:5555", "ws://[::1]:5555/v1/speculation"),
        ("HTTP://host:5555", "ws://host:5555/v1/speculation"),
        ("HTTPS://Host/duo/v1", "wss://Host/duo/v1/speculation"),
    ],
)
def test_the_url_of_the_websocket_is_derived_from_that_of_the_lead(lead, url):
    assert settings("--lead", lead).websocket_url == url


@pytest.mark.parametrize(
    "lead",
    [
        *("ftp://host", "http://", "no host", "host:0x15b3", "http://host:0x15b3", "http://host:99999"),
        *("http://host:5555?key=1", "http://host:5555/#chat", "http://gpu..example:5555", "http://[::1:5555"),
    ],
)
def test_a_wrong_url_is_an_error_with_an_example(lead, complaint):
    assert "http://192.168.1.20:5555" in complaint(settings, "--lead", lead)


@pytest.mark.parametrize(
    ("options", "n_threads"),
    [
        (["--lead", "http://localhost:5555"], 1),
        (["--lead", "http://gpu-box:5555"], 8),
        (["--lead", "http://localhost:5555", "--cpus", "0-7"], 8),
    ],
    ids=["on the lead's machine", "on another machine", "on chosen cores"],
)
def test_all_cores_are_used_that_the_lead_does_not_need(monkeypatch, options, n_threads):
    monkeypatch.setattr(cpus, "n_physical", lambda: 8)
    assert settings(*options).n_threads == n_threads


@pytest.mark.parametrize(
    ("name", "own"), [("desk-1", "desk-1"), ("my desk!", "my-desk-"), ("x" * 99, "x" * 64)]
)
def test_the_name_is_one_that_the_protocol_allows(name, own):
    assert settings("--name", name).own_name == own


@pytest.mark.parametrize(("parallel", "n_branches"), [(7, 16), (32, 3), (33, 2), (64, 1), (65, 0), (256, 0)])
def test_there_are_fewer_branches_if_llama_cpp_has_too_few_slots(parallel, n_branches):
    assert settings("--parallel", str(parallel)).n_branches_each == n_branches


CELLS, SLOTS = "--ctx-size", "--parallel"
TOO_SMALL = ((1, 4), (67, 4), (16, 1), (255, 256))
TWO_WAYS = "--discover cannot be combined with --lead"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--n-ahead 65", "--n-ahead"),
        ("--n-branches -1", "branches"),
        ("--n-branches 65", "branches"),
        ("--discover --lead http://a:1,http://b:1", TWO_WAYS),
        ("--discover-all --lead http://a:1,http://b:1", TWO_WAYS),
        *((f"{CELLS} {n} {SLOTS} {m}", f"{CELLS} {n} is too small for {SLOTS} {m}") for n, m in TOO_SMALL),
    ],
)
def test_what_cannot_be_is_an_error(options, words, complaint):
    assert words in complaint(settings, *options.split())


@pytest.mark.parametrize(("ctx_size", "parallel"), [(0, 4), (68, 4), (256, 256)])
def test_a_context_with_a_cell_for_each_slot_is_accepted(ctx_size, parallel):
    assert settings("--ctx-size", str(ctx_size), "--parallel", str(parallel)).compute.ctx_size == ctx_size


def test_the_key_is_a_variable_an_option_or_a_file(monkeypatch, tmp_path):
    (tmp_path / "key").write_text("filed\n")
    assert BackSettings.from_command_line([]).read_key() is None
    assert BackSettings.from_command_line(["--key-file", str(tmp_path / "key")]).read_key() == "filed"
    monkeypatch.setenv("BACK_KEY", "from-environment")
    assert BackSettings.from_command_line([]).read_key() == "from-environment"
    given = BackSettings.from_command_line(["--api-key", "given"])
    assert given.read_key() == "given"
    assert "given" not in repr(given)


PLAIN, SAFE = FoundLead("http://10.0.0.1:5555", "70B"), FoundLead("https://10.0.0.2:5555", "70B")


def test_a_lead_that_announces_https_is_contacted_with_it(monkeypatch):
    monkeypatch.setattr(module, "find_leads", lambda _: [SAFE])
    found = settings("--discover").discovered()
    assert found.websocket_url == "wss://10.0.0.2:5555/v1/speculation"
    assert found.tls() is not None


def test_with_a_ca_file_leads_without_https_are_ignored(monkeypatch):
    monkeypatch.setattr(module, "find_leads", lambda _: [PLAIN, SAFE])
    assert settings("--discover", "--ca-file", "ca.pem").discovered().url == SAFE.url


def test_several_leads_are_named_one_by_one_or_with_commas():
    both = ("http://one:5555", "http://two:5555")
    assert settings("--lead", "http://one:5555/v1", "--lead", "http://two:5555").lead == both
    assert settings("--lead", "http://one:5555,http://two:5555,http://one:5555/").lead == both


def test_each_lead_may_use_as_many_sequences_as_a_single_one():
    one, two = settings("--parallel", "3"), settings("--parallel", "3", "--lead", "http://a:1,http://b:1")
    assert (one.n_parallel, two.n_parallel) == (3, 6)
    assert two.model_options.parallel == 6
    assert two.n_slots == 2 * one.n_slots


def test_all_announced_leads_are_drafted_for(monkeypatch):
    monkeypatch.setattr(module, "find_leads", lambda _: [PLAIN, SAFE])
    assert settings("--discover-all").discovered().lead == (PLAIN.url, SAFE.url)
    assert settings("--discover-all", "--ca-file", "ca.pem").discovered().lead == (SAFE.url,)


def test_of_too_many_leads_some_are_left_out(monkeypatch, caplog):
    leads = [FoundLead(f"http://10.0.0.{number}:5555", "70B") for number in range(40)]
    monkeypatch.setattr(module, "find_leads", lambda _: leads)
    found = settings("--discover-all", "--parallel", "100").discovered()
    assert 1 <= len(found.lead) < 40
    assert found.n_parallel <= MAX_SLOTS
    assert "http://10.0.0.39:5555" in caplog.messages[-1]


def test_without_an_announced_lead_there_is_nothing_to_draft_for(monkeypatch):
    monkeypatch.setattr(module, "find_leads", lambda _: [])
    with pytest.raises(NoLeadError, match="no lead is announced"):
        settings("--discover-all").discovered()


@pytest.fixture
def joined(monkeypatch):
    """A lead that was joined before, and the arguments with which it was looked up."""
    lead = JoinedLead("https://10.0.0.1:5556", SecretStr("its-key"), Path("certificate.pem"), "laptop-2")
    asked = []
    monkeypatch.setattr(JoinedLead, "find", lambda *arguments: asked.append(arguments) or lead)
    return lead, asked


def test_the_lead_that_was_joined_is_drafted_for_with_its_key_and_certificate(joined):
    lead, asked = joined
    found = settings("--name", "laptop").joined()
    expected = (lead.url, "its-key", lead.certificate)
    assert (found.url, found.read_key(), found.pinned_certificate_file) == expected
    assert not found.has_default_lead
    assert (found.own_name, settings().joined().own_name) == ("laptop", "laptop-2")
    assert asked[0] == ("back", "laptop", None)


@pytest.mark.parametrize("options", [("--lead", "http://gpu:5555"), ("--discover",), ("--discover-all",)])
def test_a_lead_that_is_named_or_searched_for_comes_before_the_one_that_was_joined(joined, options):
    assert settings(*options).joined() == settings(*options)
    assert joined[1] == []


def test_without_one_that_was_joined_the_lead_is_on_this_machine(monkeypatch):
    monkeypatch.setattr(JoinedLead, "find", lambda *_: None)
    found = settings().joined()
    assert (found.url, found.has_default_lead) == ("http://127.0.0.1:5555", True)


@pytest.mark.usefixtures("joined")
def test_one_that_was_joined_is_looked_for_again_by_its_key(monkeypatch):
    given = settings("--join", "a-code").joined()
    assert (given.is_joined, settings().is_joined) == (True, False)
    assert given.discovered().url == "https://10.0.0.1:5556"
    moved = JoinedLead("https://10.0.0.77:5556", SecretStr("its-key"), Path("certificate.pem"))
    monkeypatch.setattr(JoinedLead, "find", lambda _role, _name, code: moved if code is None else None)
    assert given.discovered(again=True).websocket_url == "wss://10.0.0.77:5556/v1/speculation"
    assert given.with_lead("https://10.0.0.1:5556").is_joined
