import re

import pytest
from pydantic import ValidationError

from back.settings import BackSettings
from chat.settings import ChatSettings
from lead.pairing.invite import InviteSettings
from lead.router.models_program import ModelsSettings
from lead.settings.lead_settings import LeadSettings
from shared.settings.base import explain_invalid

PROGRAMS = (LeadSettings, BackSettings, ChatSettings)
WRONG = ("abc", "-5", "1e99", "1.5", "", "{", "[1", "\x00", "nan", True, [], {}, 10**30)
PYDANTIC = re.compile(
    r"Input should|valid (integer|string|number)|pydantic|type=|validation error|Value error"
)


def sentences(program, option, value):
    try:
        program.from_options(**{option: value})
    except ValidationError as error:
        yield from explain_invalid(error, program.options(), lambda name: f"--{name}")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.program)
def test_each_option_with_wrong_values_is_one_sentence(program):
    said = [
        sentence
        for option in program.options()
        for value in WRONG
        for sentence in sentences(program, option, value)
    ]
    assert len(said) > 10 * len(program.options()) / 3
    assert [each for each in said if PYDANTIC.search(each) or "\n" in each] == []


COMMAND_LINES = [
    (LeadSettings, "--ctx-size abc", "--ctx-size: must be a whole number (got 'abc')"),
    (LeadSettings, "-c 1.5", "-c: must be a whole number (got '1.5')"),
    (LeadSettings, "--port 70000", "--port: must be at most 65535"),
    (LeadSettings, "--print al", "--print: must be one of none, accepted, all: did you mean all?"),
    (LeadSettings, "--temp hot", "--temp: must be a number (got 'hot')"),
    (LeadSettings, "--log-level loud", "--log-level: must be one of debug, info, warning, error"),
    (LeadSettings, "--drain-seconds -1", "--drain-seconds: must be at least 0 (got '-1')"),
    (LeadSettings, "--rpc-timeout 0", "--rpc-timeout: must be more than 0 (got '0')"),
    (LeadSettings, "-ngl many", "-ngl: must be a whole number (got 'many')"),
    (LeadSettings, "-fa maybe", "-fa: must be one of on, off, auto"),
    (LeadSettings, "--chat-template-kwargs {", "--chat-template-kwargs"),
    (LeadSettings, "--cpus many", "--cpus: "),
    (LeadSettings, "-ot exps", "-ot: write PATTERN=BUFFER"),
    (LeadSettings, "-hf qwen3", "-hf: write it as USER/REPO"),
    (LeadSettings, "-ts a,b", "-ts: must be a number"),
    (LeadSettings, "--lora none.gguf", "--lora: none.gguf: No such file"),
    (LeadSettings, "--ui maybe", "'maybe' is not an option"),
    (BackSettings, "--n-ahead 100", "--n-ahead: must be at most 64"),
    (BackSettings, "--ping-seconds x", "--ping-seconds: must be a number"),
    (BackSettings, "--lead ftp://x", "--lead: write an address such as"),
    (ChatSettings, "--timeout 0", "--timeout: must be more than 0"),
    (ChatSettings, "--output xml", "--output: must be one of text, json"),
    (ChatSettings, "--seed x", "--seed: must be a whole number"),
    (ModelsSettings, "destroy", "ACTION: must be one of list, show, pull, remove"),
    (InviteSettings, "--lead ::", "--lead: write an address such as"),
]


@pytest.mark.parametrize(("program", "typed", "sentence"), COMMAND_LINES)
def test_a_wrong_command_line_is_one_sentence(complaint, program, typed, sentence):
    said = complaint(program.from_command_line, typed.split())
    assert said.startswith(f"{program.program}: ")
    assert sentence in said
    assert said.count("\n") == 1


def test_words_of_other_programs_name_what_models_does():
    assert [ModelsSettings.from_command_line([word]).action for word in ("rm", "ls")] == ["remove", "list"]
