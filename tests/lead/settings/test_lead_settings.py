import sys

import llama_cpp
import pytest
from pydantic import ValidationError

from lead.settings.lead_settings import LeadSettings
from shared import cpus
from shared.errors import ConfigError


def settings(*arguments):
    return LeadSettings.from_command_line(list(arguments))


def test_the_spellings_of_llama_cpp_work():
    given = settings("-m", "a.gguf", "--n-gpu-layers", "99", "-c", "4096", "-t", "3", "--parallel", "2")
    compute = given.compute
    assert str(given.source.model) == "a.gguf"
    assert (compute.n_gpu_layers, compute.ctx_size, compute.threads, compute.parallel) == (99, 4096, 3, 2)


@pytest.mark.parametrize(
    ("n_cores", "chosen", "n_threads"), [(8, (), 7), (1, (), 1), (4, ("--cpus", "0-3"), 4)]
)
def test_one_core_is_left_to_http_unless_there_is_no_other_or_cores_are_chosen(
    monkeypatch, n_cores, chosen, n_threads
):
    monkeypatch.setattr(cpus, "n_physical", lambda: n_cores)
    assert settings(*chosen).n_threads == n_threads


@pytest.mark.parametrize(
    ("said", "maximum"), [((), 8), (("-t", "7"), 0), (("-tb", "8"), 0), (("--cpus", "0-7"), 0)]
)
def test_all_cores_may_be_tried_unless_somebody_has_said_how_many(monkeypatch, tmp_path, said, maximum):
    monkeypatch.setattr(cpus, "n_physical", lambda: 8)
    assert settings(*said).load_command(tmp_path / "a.gguf").max_threads == maximum


@pytest.mark.parametrize(("terminal", "printing"), [(True, "accepted"), (False, "none")])
def test_text_is_printed_on_a_terminal_by_default(monkeypatch, terminal, printing):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert settings().printing == printing


@pytest.mark.parametrize(
    ("arguments", "mib"),
    [
        ([], 32),
        (["--insecure"], 0),
        (["--insecure", "--api-key", "x"], 32),
        (["--insecure", "--suffix-memory", "8"], 8),
        (["--suffix-memory", "0"], 0),
    ],
)
def test_strangers_share_recent_texts_only_if_that_was_asked_for(arguments, mib):
    assert settings(*arguments).suffix_mib == mib


REFUSED = {
    "--port 70000": "--port",
    "--depth -1": "--depth",
    "--cpus x": "--cpus",
    "--parallel 0": "--parallel",
    "--print some": "--print",
    "--batch-size 31": "--batch-size",
    **{
        f"{option} 1": f"{option}: needs a draft model. Set --back FILE"
        for option in ("--back-threads", "--back-gpu-layers", "--back-cpus")
    },
    "--cpus 0-3 --back b.gguf --back-cpus 3-4": "Shared cores: [3]",
    "--cpus 0-3 --back b.gguf": "--back-cpus: required with --cpus and --back\n",
    "--chat-template x --chat-template-file y": "--chat-template",
    "--chat-template-kwargs []": "--chat-template-kwargs",
    "--chat-template-kwargs {": "--chat-template-kwargs",
    **{
        f"--host {host}": "--host: Unix sockets are not supported"
        for host in ("x.sock", "/run/lead", "unix:/run/lead.sock")
    },
    "--models-dir x --model a.gguf": "--models-dir: cannot be combined with --model",
    "--models-dir x -hf a/b": "--models-dir: cannot be combined with --model",
    "--models-dir x --takeover": "--takeover: cannot be combined with --models-dir",
    "--models-file x": "--models-file: needs --models-dir",
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.items())
def test_what_is_wrong_is_refused_by_the_name_of_the_option(refused, arguments, message):
    assert message in refused(*arguments.split())


def test_a_chat_template_comes_from_the_command_line_or_a_file(tmp_path):
    path = tmp_path / "own.jinja"
    path.write_text("hello")
    assert settings("--chat-template", "llama3").conversation.template() == "llama3"
    assert settings("--chat-template-file", str(path)).conversation.template() == "hello"
    assert settings().conversation.template() is None


def test_a_chat_template_that_cannot_be_read_is_an_error():
    with pytest.raises(ConfigError, match="cannot read the chat template"):
        settings("--chat-template-file", "/not/there").conversation.template()


@pytest.mark.parametrize(
    ("arguments", "exact"),
    [((), "off"), (("--exact",), "on"), (("--exact", "auto"), "auto"), (("--exact", "--port", "0"), "on")],
)
def test_exact_needs_no_value(arguments, exact):
    assert settings(*arguments).compute.exact == exact


WORKERS = ("desk1:50052", "10.8.0.2:50052")


def test_an_address_may_be_in_the_brackets_of_urls():
    assert LeadSettings.from_command_line(["--host", "[::1]"]).host == "::1"


def test_workers_are_read_in_their_order():
    assert LeadSettings.from_options(rpc=",".join(WORKERS)).workers.rpc == WORKERS


@pytest.mark.parametrize(
    "workers", ["desk1", "[::1]:50052", "desk1:50052,desk1:50052", ",".join(f"w{i}:1" for i in range(17))]
)
def test_what_llama_cpp_cannot_reach_is_refused(workers):
    with pytest.raises(ValidationError, match="workers"):
        LeadSettings.from_options(rpc=workers)


def test_without_rpc_in_llama_cpp_the_lead_says_how_to_build_it(monkeypatch):
    monkeypatch.setattr(llama_cpp, "llama_supports_rpc", lambda: False)
    with pytest.raises(ConfigError, match="CMAKE_ARGS=-DGGML_RPC=ON make setup"):
        LeadSettings.from_options(rpc=WORKERS[0]).located()
    LeadSettings.from_options().located()


def test_aliases_and_tags_are_in_alphabetical_order():
    settings = LeadSettings(alias="tiny, fim,code,", tags="small")
    assert (settings.aliases("llama 70B"), settings.tag_names) == (("code", "fim", "tiny"), ("small",))


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ((), "back"),
        (("--model", "70B.gguf"), "back --model MODEL"),
        (("--hf-repo", "some/repository"), "back --model MODEL"),
        (("--models-dir", "."), "back --model MODEL"),
    ],
)
def test_a_back_of_the_demo_model_needs_no_model_of_its_own(source, command):
    assert settings(*source).back_command == command
