"""The draft model inside the engine, as the command line names it."""

from pathlib import Path

import pytest

from lead.settings.lead_settings import LeadSettings
from shared.model_files.builtin import builtin_draft


def settings(*arguments):
    return LeadSettings.from_command_line(list(arguments))


@pytest.mark.parametrize("option", ["-md", "--draft-model", "--model-draft", "--spec-draft-model"])
def test_llama_servers_option_for_a_draft_model_means_one_in_the_engine(option):
    given = settings(option, "d.gguf")
    assert given.drafting.draft_model == Path("d.gguf")
    assert not given.own_back.is_wanted


def test_it_is_loaded_as_its_options_say():
    given = settings(
        *("-md", "d.gguf", "-ngld", "3", "-td", "2", "-cd", "256", "-ctkd", "q8_0"),
        *("--draft-max", "5", "-t", "4", "--tensor-split", "1,2"),
    )
    load = given.load_draft()
    assert load
    assert (load.model, load.n_max, load.fixed_threads) == (Path("d.gguf"), 5, True)
    options = load.options
    assert (options.n_gpu_layers, options.threads, options.ctx_size) == (3, 2, 256)
    assert (options.cache_type_k, options.cache_type_v, options.tensor_split) == ("q8_0", "f16", ())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--device A,B --main-gpu 1 -sm row", (("A", "B"), "layer", 0)),
        ("--device A,B --main-gpu 1 -sm none", (("A", "B"), "none", 1)),
        ("--device A,B --main-gpu 1 -sm none -devd C", (("C",), "layer", 0)),
        ("--device A -devd none", (("none",), "layer", 0)),
        ("--cpu-moe --n-cpu-moe 3 -ot exps=CPU", ((), "layer", 0)),
    ],
)
def test_it_has_devices_of_its_own_or_the_targets(arguments, expected):
    load = settings("-md", "d.gguf", *arguments.split()).load_draft()
    assert load
    options = load.options
    assert (options.device, options.split_mode, options.main_gpu) == expected
    assert (options.cpu_moe, options.n_cpu_moe, options.override_tensor) == (False, 0, ())


def test_it_has_the_targets_threads_and_slots_if_nothing_else_is_said():
    load = settings("-md", "d.gguf", "-t", "4", "-np", "2").load_draft()
    assert (load.options.threads, load.options.parallel, load.fixed_threads) == (4, 2, False)


def test_the_demos_draft_model_can_be_named():
    located = settings("-md", "builtin", "-m", str(builtin_draft())).located()
    assert located.drafting.draft_model == builtin_draft()


def test_a_back_may_draft_as_well():
    given = settings("-md", "d.gguf", "--back", "b.gguf")
    assert given.drafting.is_wanted
    assert given.own_back.is_wanted


def test_two_draft_models_are_an_error(refused):
    assert "-hfd: cannot be combined with --draft-model" in refused("-md", "d.gguf", "-hfd", "a/b")
