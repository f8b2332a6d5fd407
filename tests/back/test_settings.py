import pytest

from back import settings as module
from back.settings import BackSettings
from shared import cpus
from shared.discovery import FoundLead


def settings(*arguments):
    return BackSettings.from_command_line(list(arguments))


def test_the_shortest_tour_needs_no_options():
    assert settings().websocket_url == "ws://127.0.0.1:5555/v1/speculation"


@pytest.mark.parametrize(
    ("lead", "url"),
    [
        ("http://host:5555", "ws://host:5555/v1/speculation"),
        ("http://host:5555/v1/", "ws://host:5555/v1/speculation"),
        ("https://host/", "wss://host/v1/speculation"),
        ("http://[::1]:5555", "ws://[::1]:5555/v1/speculation"),
        ("HTTP://host:5555", "ws://host:5555/v1/speculation"),
        ("HTTPS://Host/duo/v1", "wss://Host/duo/v1/speculation"),
    ],
)
def test_the_leads_address_becomes_its_door(lead, url):
    assert settings("--lead", lead).websocket_url == url


@pytest.mark.parametrize(
    "lead",
    [
        "host:5555",
        "ftp://host",
        "http://",
        "nonsense",
        "http://host:0x15b3",
        "http://host:99999",
        "http://host:5555?key=1",
        "http://host:5555/#chat",
        "http://gpu..example:5555",
        "http://[::1:5555",
    ],
)
def test_an_address_that_is_none_ends_with_a_sentence(lead, capsys):
    with pytest.raises(SystemExit):
        settings("--lead", lead)
    assert "http://192.168.1.20:5555" in capsys.readouterr().err


def test_beside_the_lead_one_thread_is_enough(monkeypatch):
    monkeypatch.setattr(cpus, "n_physical", lambda: 8)
    assert settings("--lead", "http://localhost:5555").n_threads == 1


def test_on_a_machine_of_its_own_it_takes_all_cores(monkeypatch):
    monkeypatch.setattr(cpus, "n_physical", lambda: 8)
    assert settings("--lead", "http://gpu-box:5555").n_threads == 8


def test_chosen_cores_are_all_used_also_beside_the_lead(monkeypatch):
    monkeypatch.setattr(cpus, "n_physical", lambda: 3)
    assert settings("--cpus", "0-2").n_threads == 3


def test_a_number_of_threads_is_taken_as_it_is():
    assert settings("--threads", "5").n_threads == 5


@pytest.mark.parametrize(
    ("name", "own"), [("desk-1", "desk-1"), ("my desk!", "my-desk-"), ("x" * 99, "x" * 64)]
)
def test_the_name_is_one_that_the_protocol_allows(name, own):
    assert settings("--name", name).own_name == own


def test_drafting_further_than_the_protocol_allows_is_refused():
    with pytest.raises(SystemExit):
        settings("--n-ahead", "65")


def test_each_sequence_gets_the_branches_that_are_asked_for():
    assert settings("--n-branches", "5").n_branches_each == 5


@pytest.mark.parametrize(("parallel", "n_branches"), [(64, 3), (65, 2), (128, 1), (129, 0), (256, 0)])
def test_branches_give_way_where_llama_cpp_has_no_slots_for_them(parallel, n_branches):
    assert settings("--parallel", str(parallel)).n_branches_each == n_branches


@pytest.mark.parametrize(("ctx_size", "parallel"), [(1, 4), (15, 4), (3, 1), (255, 256)])
def test_a_context_in_which_llama_cpp_would_abort_is_refused(ctx_size, parallel, capsys):
    with pytest.raises(SystemExit):
        settings("--ctx-size", str(ctx_size), "--parallel", str(parallel))
    assert f"--ctx-size {ctx_size} is too small for --parallel {parallel}" in capsys.readouterr().err


@pytest.mark.parametrize(("ctx_size", "parallel"), [(0, 4), (16, 4), (256, 256)])
def test_a_context_with_a_cell_for_each_line_is_taken(ctx_size, parallel):
    assert settings("--ctx-size", str(ctx_size), "--parallel", str(parallel)).compute.ctx_size == ctx_size


@pytest.mark.parametrize("n", ["-1", "9"])
def test_a_number_of_branches_out_of_range_is_refused(n, capsys):
    with pytest.raises(SystemExit):
        settings("--n-branches", n)
    assert "branches" in capsys.readouterr().err


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


def test_a_lead_that_announces_https_is_dialled_with_it(monkeypatch):
    monkeypatch.setattr(module, "find_leads", lambda _: [SAFE])
    found = settings("--discover").discovered()
    assert found.websocket_url == "wss://10.0.0.2:5555/v1/speculation"
    assert found.tls() is not None


def test_who_knows_an_authority_shows_no_key_to_a_lead_without_a_certificate(monkeypatch):
    monkeypatch.setattr(module, "find_leads", lambda _: [PLAIN, SAFE])
    assert settings("--discover", "--ca-file", "ca.pem").discovered().lead == SAFE.url
