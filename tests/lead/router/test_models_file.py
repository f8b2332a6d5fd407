from pathlib import Path

import pytest

from lead.router.catalog import FOLDER, KnownModel
from lead.router.models_file import served_models
from lead.settings.lead_settings import LeadSettings
from shared.errors import ConfigError

KNOWN = {name: KnownModel(name, Path(f"/{name}.gguf"), FOLDER, 1) for name in ("big", "small")}


@pytest.fixture
def read(tmp_path):
    """The models of a file with this text, for a lead with these options."""

    def read(text, cache_ram=100, **options):
        (tmp_path / "models.toml").write_text(text)
        lead = LeadSettings.from_options(models_dir=tmp_path, **options)
        return served_models(lead, KNOWN, cache_ram)

    return read


def test_without_a_file_each_model_has_the_options_of_the_lead(tmp_path):
    lead = LeadSettings.from_options(models_dir=tmp_path, ctx_size=512, port=1, api_key=["k"])
    models = served_models(lead, KNOWN, 100)
    assert set(models) == {"big", "small"}
    assert models["big"].settings.compute.ctx_size == 512
    assert models["big"].path == Path("/big.gguf")
    assert models["big"].options["port"] == 0
    assert "api_key" not in models["big"].options


def test_a_table_goes_over_the_defaults_and_the_command_line_over_both(read):
    models = read("[defaults]\nctx-size = 1\nparallel = 2\n[big]\nctx-size = 64\nparallel = 3\n", parallel=4)
    assert models["big"].settings.compute.ctx_size == 64
    assert models["small"].settings.compute.ctx_size == 1
    assert {model.settings.compute.parallel for model in models.values()} == {4}


def test_earlier_texts_have_a_share_of_memory_unless_an_option_says_it(read):
    models = read("[big]\ncache-ram = 7\n")
    assert (models["big"].options["cache_ram"], models["small"].options["cache_ram"]) == (7, 100)


def test_a_model_can_be_pinned_started_at_once_and_have_further_names(read):
    model = read('[big]\npin = true\nload-on-startup = true\nalias = "large,gpt-4"\n')["big"]
    assert (model.pinned, model.on_startup, set(model.aliases)) == (True, True, {"large", "gpt-4"})
    assert model.options["alias"] == "big"


def test_a_model_may_be_elsewhere(read):
    models = read('[mine]\nmodel = "/else/where.gguf"\n[theirs]\nhf-repo = "a/b:Q8_0"\n')
    assert models["mine"].path == Path("/else/where.gguf")
    assert models["theirs"].path is None
    assert models["theirs"].options["hf_repo"] == "a/b:Q8_0"


def test_a_draft_model_may_be_called_by_its_name(read):
    assert read('[big]\ndraft-model = "small"\n')["big"].settings.drafting.draft_model == Path("/small.gguf")


@pytest.fixture
def projectors(monkeypatch):
    """Each model has a projector beside it."""
    place = "lead.settings.lead_settings.projector_beside"
    monkeypatch.setattr(place, lambda model, _: model.with_suffix(".mmproj"))


@pytest.mark.usefixtures("projectors")
def test_a_model_sees_with_the_projector_beside_it_unless_its_table_says_otherwise(read):
    models = read('[small]\nmmproj = "/other.gguf"\n[mine]\nmodel = "/else/where.gguf"\n')
    found = {name: model.settings.images.mmproj for name, model in models.items()}
    assert found == {"big": Path("/big.mmproj"), "small": Path("/other.gguf"), "mine": None}
    assert models["big"].options["mmproj"] == "/big.mmproj"


@pytest.mark.parametrize("option", ["mmproj-auto = false", "context-shift = true", "exact = 'on'"])
@pytest.mark.usefixtures("projectors")
def test_a_model_that_is_to_read_text_gets_no_projector(read, option):
    assert read(f"[big]\n{option}\n")["big"].settings.images.mmproj is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[big]\nctx-sise = 1\n", r"\[big\] unknown option ctx-sise: did you mean ctx-size\?"),
        ("[big]\nctx-size = 'many'\n", r"\[big\] ctx-size: .*\(got 'many'\)"),
        ("[big]\nport = 1\n", r"\[big\] port is an option of the lead, not of a model"),
        ("[defaults]\nmodel = 'x'\n", r"\[defaults\] unknown option model"),
        ("[big]\npin = 1\n", r"\[big\] pin must be true or false, not 1"),
        ("[other]\nctx-size = 1\n", r"\[other\] is not a model of this lead \(big, small\)"),
        ("ctx-size = 1\n", "ctx-size is outside of a table"),
        ("[big\n", "is not valid TOML"),
        ("[big]\nalias = 'small'\n", "'small' is a name of both small and big"),
        ("[big]\nback = 'x'\ncpus = '0'\n", r"\[big\] back-cpus: required with --cpus"),
    ],
)
def test_what_is_wrong_is_said_with_the_table_and_the_option(read, text, reason):
    with pytest.raises(ConfigError, match=reason):
        read(text)


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"models_file": "/none.toml"}, "cannot read"), ({"alias": "x"}, "--alias belongs to one model")],
    ids=["a file that is not there", "an option of one model"],
)
def test_what_cannot_be_for_all_models_is_refused(tmp_path, options, reason):
    lead = LeadSettings.from_options(models_dir=tmp_path, **options)
    with pytest.raises(ConfigError, match=reason):
        served_models(lead, KNOWN, 0)
