import logging
from pathlib import Path

import pytest
from gguf import GGUFWriter

from back.cli import main as back
from back.settings import BackSettings
from lead.cli import main as lead
from lead.settings.lead_settings import LeadSettings
from shared.errors import ModelLoadError
from shared.model_files import builtin
from shared.model_files.hub import Hub, HubModel
from tests.shared.convert.conftest import checkpoint, conversion_cache, tokenizer  # noqa: F401 - fixtures
from tests.tiny_models import write_and_close


def settings(*arguments):
    return LeadSettings.from_command_line(list(arguments))


@pytest.mark.parametrize("option", ["--model", "--draft-model", "--back"])
def test_a_models_name_stands_for_its_file(monkeypatch, tmp_path, option):
    monkeypatch.setattr(builtin, "_PACKAGED", {"pair": ("installed_pair", "pair.gguf", "")})
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "installed_pair").mkdir()
    (tmp_path / "installed_pair" / "__init__.py").touch()
    (tmp_path / "installed_pair" / "pair.gguf").touch()
    given = settings(option, "pair")
    found = {given.source.model, given.drafting.draft_model, given.own_back.back}
    assert found == {None, tmp_path / "installed_pair" / "pair.gguf"}


def test_a_name_without_its_package_is_an_error_of_the_option(monkeypatch, complaint):
    monkeypatch.setattr(builtin, "_PACKAGED", {"pair": ("no_such_package", "pair.gguf", "ask Ann")})
    assert "needs the package no_such_package: ask Ann" in complaint(settings, "--model", "pair")


@pytest.mark.parametrize("option", ["--model", "--draft-model", "--back"])
def test_a_path_that_the_system_cannot_look_up_is_an_error_of_the_option(complaint, option):
    assert f"{option}: it cannot be read (File name too long)" in complaint(settings, option, "a" * 300)


@pytest.fixture
def fetched(monkeypatch):
    """The requests to the hub."""
    asked = []
    monkeypatch.setattr("lead.settings.lead_settings.projector_beside", lambda *_: None)

    def fetch(hub, model, **_):
        asked.append((hub, model))
        return Path("cache/toy.gguf")

    monkeypatch.setattr(Hub, "fetch", fetch)
    return asked


@pytest.mark.parametrize("kind", [LeadSettings, BackSettings])
@pytest.mark.parametrize("option", ["-hf", "-hfr", "--hf-repo"])
def test_a_model_of_the_hub_is_downloaded(fetched, kind, option):
    given = kind.from_command_line([option, "a/b:Q8_0", "-hff", "c.gguf", "--offline"])
    assert given.located().source.model == Path("cache/toy.gguf")
    assert fetched == [(Hub(None, offline=True), HubModel("a/b", "Q8_0", "c.gguf"))]


@pytest.mark.parametrize("variable", ["HF_TOKEN", "LEAD_HF_TOKEN"])
def test_the_token_can_be_set_in_the_environment(fetched, monkeypatch, variable):
    monkeypatch.setenv(variable, "hf_hidden")
    settings("-hf", "a/b").located()
    assert fetched[0][0].token == "hf_hidden"  # noqa: S105 - of this test


def test_the_token_is_not_shown():
    assert "hf_hidden" not in repr(settings("-hf", "a/b", "-hft", "hf_hidden"))


def test_the_model_of_the_back_can_come_from_the_hub(fetched):
    given = settings("--back-hf-repo", "a/b:Q8_0", "--back-threads", "2")
    assert given.own_back.is_wanted
    assert str(given.located().own_back.back) == "cache/toy.gguf"
    assert fetched == [(Hub(None), HubModel("a/b", "Q8_0"))]


@pytest.mark.parametrize("option", ["-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf"])
def test_the_draft_model_can_come_from_the_hub(fetched, option):
    given = settings(option, "a/b:Q8_0")
    assert given.drafting.is_wanted
    assert str(given.located().drafting.draft_model) == "cache/toy.gguf"
    assert fetched == [(Hub(None), HubModel("a/b", "Q8_0"))]


def test_llama_servers_variable_for_the_draft_model_works(fetched, monkeypatch):
    monkeypatch.setenv("LLAMA_ARG_SPEC_DRAFT_HF_REPO", "a/b")
    settings().located()
    assert fetched == [(Hub(None), HubModel("a/b"))]


def test_without_a_repository_nothing_is_downloaded(fetched):
    given = settings()
    assert given.located() == given
    assert fetched == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-hf", "nonsense"], "-hf: write it as USER/REPO"),
        (["-hf", "a/b", "-m", "a.gguf"], "-hf: cannot be combined with --model"),
        (["-hfd", "nonsense"], "-hfd: write it as USER/REPO"),
        (["--back-hf-repo", "a/b", "--back", "b.gguf"], "--back-hf-repo: cannot be combined with --back"),
        (["--back-threads", "2"], "--back-threads: needs a draft model. Set --back FILE"),
        (["-hff", "c.gguf"], "-hff: needs a repository: -hf USER/REPO"),
    ],
)
def test_contradictory_options_are_an_error_with_status_2(complaint, arguments, message):
    assert f"lead: {message}" in complaint(settings, *arguments)


@pytest.mark.parametrize("program", [lead, back])
def test_a_program_ends_with_a_sentence_before_anything_starts(program, monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(f"{program.__module__}.configure_logging", lambda _level, **_more: None)
    monkeypatch.setattr("sys.argv", ["it", "-m", str(tmp_path / "big-00002-of-00003.gguf")])
    with caplog.at_level(logging.INFO), pytest.raises(SystemExit) as ended:
        program()
    assert ended.value.code == 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "is part 2 of 3. Use the first" in caplog.text


@pytest.mark.parametrize("kind", [LeadSettings, BackSettings])
def test_a_checkpoint_is_converted(kind, checkpoint):  # noqa: F811
    model = kind.from_command_line(["--model", str(checkpoint)]).located().source.model
    assert model.name == "stories.gguf"


def test_the_draft_model_is_converted_with_the_same_tokenizer(checkpoint, tokenizer, tmp_path):  # noqa: F811
    elsewhere = tokenizer.rename(tmp_path / "other.bin")
    given = settings("--back", str(checkpoint), "--tokenizer", str(elsewhere)).located()
    assert given.own_back.back.name == "stories.gguf"
    assert given.own_back.source(given.source).model == given.own_back.back


@pytest.mark.parametrize("option", ["--model", "--back"])
def test_a_file_that_is_no_text_model_is_refused(tmp_path, option):
    path = tmp_path / "mmproj.gguf"
    write_and_close(GGUFWriter(path, "clip"))
    with pytest.raises(ModelLoadError, match="is the projector of a model"):
        settings(option, str(path)).located()
