"""The options of `lead bench`."""

from pathlib import Path

import pytest

from lab.measuring.bench_settings import BenchSettings


def read(*arguments):
    return BenchSettings.from_command_line(arguments)


def test_texts_can_be_compared_without_being_told():
    settings = read("--model", "m.gguf")
    assert (settings.prompts, settings.sampling.temperature, settings.suffix_mib) == (("built-in",), 0.0, 0)


def test_several_draft_models_and_sets_of_prompts_can_be_named():
    settings = read("--draft-model", "a.gguf", "--draft-model", "b.gguf", "--prompts", "gsm8k,mine.txt")
    assert settings.draft_models == (Path("a.gguf"), Path("b.gguf"))
    assert settings.prompts == ("gsm8k", "mine.txt")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--plot", "speed.doc"), "--plot: the name must end with .png"),
        (("--ca-file", "tls.pem"), "--ca-file: needs --url"),
        (("--url", "http://gpu:port"), "--url: write an address such as"),
        (("--rpc", "a:1"), "--rpc: layers on other machines cannot be measured"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(arguments, message, complaint):
    assert message in complaint(read, *arguments)
