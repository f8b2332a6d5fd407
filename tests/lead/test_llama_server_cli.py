import pytest

from lead.llama_server_cli import LlamaServerSettings, without_refused


def parse(*arguments):
    return LlamaServerSettings.from_command_line(list(arguments))


def test_the_port_is_llama_servers():
    assert (parse().port, parse("--port", "9").port) == (8080, 9)


@pytest.mark.parametrize(
    "arguments", [["--no-jinja"], ["--mirostat", "2"], ["--no-cont-batching"], ["-r", "x"], ["--mirostat=2"]]
)
def test_an_option_that_the_lead_lacks_is_ignored_with_the_reason(arguments, capsys):
    assert parse(*arguments, "-c", "256").compute.ctx_size == 256
    assert f"lead-llama-server: {arguments[0]} is ignored: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reasoning", "ignored"),
    [
        (["--reasoning-budget", "0"], "off", False),
        (["--reasoning_budget=0"], "off", False),
        (["--reasoning-budget", "-1"], "auto", False),
        (["--reasoning-budget", "512"], "auto", True),
    ],
)
def test_a_budget_of_no_reasoning_switches_it_off(arguments, reasoning, ignored, capsys):
    assert parse(*arguments).conversation.reasoning == reasoning
    assert ("--reasoning-budget=512 is ignored" in capsys.readouterr().err) == ignored


def test_values_go_with_their_option():
    assert without_refused(["-x", "1", "-2", "-y", "3", "-x", "-z", "-x=3"], {"-x": ""}) == (
        ["-y", "3", "-z"],
        ["-x", "-x", "-x=3"],
    )


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--usage", "use --help"),
        ("--completion-bash", "completions for shells are installed"),
        ("--cache-list", "use `lead list`"),
        ("--model-url", "use --model FILE"),
        ("--gpt-oss-20b-default", "use --model FILE"),
    ],
)
def test_an_option_without_which_nothing_should_be_served_is_refused(option, reason, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(option)
    assert ended.value.code == 2
    assert f"lead-llama-server: {option}: {reason}" in capsys.readouterr().err


def test_variables_that_set_nothing_are_ignored_with_a_warning(monkeypatch, capsys):
    for name in ("LLAMA_ARG_CONTROL_VECTOR", "LLAMA_ARG_CTX_SIZE", "LLAMA_ARG_NO_KV_OFFLOAD"):
        monkeypatch.setenv(name, "64")
    assert parse().compute.ctx_size == 64
    assert capsys.readouterr().err == (
        "lead-llama-server: LLAMA_ARG_CONTROL_VECTOR is ignored: unknown option\n"
    )


def test_options_may_have_underscores_but_values_keep_theirs():
    settings = parse("--ctx_size", "256", "--alias", "my_model", "--chat_template=my_own")
    assert (settings.compute.ctx_size, settings.alias, settings.conversation.chat_template) == (
        256,
        "my_model",
        "my_own",
    )


@pytest.mark.parametrize(
    ("arguments", "unified"),
    [([], True), (["-np", "2"], False), (["-np", "2", "--kv-unified"], True), (["--parallel=2"], False)],
)
def test_slots_that_were_counted_have_parts_of_the_context(arguments, unified):
    assert parse(*arguments).compute.kv_unified is unified
