"""The refusals before anything is started. tests/real runs the whole program."""

import pytest

from lead.generate import program
from lead.generate.generate_settings import GenerateSettings
from shared.errors import ContextExceededError
from shared.model_files.builtin import builtin_target

REFUSALS = {
    "no file": (("--model", "missing.gguf"), "does not exist"),
    "no model": (("--model", "tokenizer.bin"), "nothing but zeros"),
    "a draft that is not there": (
        ("--model", str(builtin_target()), "--back", "missing.bin"),
        "missing.bin does not exist",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_done_is_said_in_a_sentence(monkeypatch, tmp_path, capsys, arguments, message):
    (tmp_path / "tokenizer.bin").write_bytes(bytes(1000))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(program, "configure_logging", lambda _level, **_more: None)
    with pytest.raises(SystemExit) as end:
        program.main([*arguments, "-i", "Once upon a time"])
    assert str(end.value.code).startswith("lead generate: ")
    assert message in str(end.value.code)
    assert "\n" not in str(end.value.code)
    assert capsys.readouterr().out == ""


async def test_a_prompt_that_does_not_fit_is_not_printed(lead, capsys):
    settings = GenerateSettings.from_command_line(["--model", "x.gguf", "-i", "x"])
    with pytest.raises(ContextExceededError):
        await program._generate(settings, "fox " * 500, lead.app.state.services)
    assert capsys.readouterr().out == ""
