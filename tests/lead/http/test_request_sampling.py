"""Defaults of the command line reach requests that do not say otherwise, and only those."""

import dataclasses

import pytest

from lead.settings.lead_settings import LeadSettings
from lead.settings.sampling_defaults import SamplingDefaults
from shared.sampling.parameters import SamplingParameters

URL = "/v1/completions"
OPTIONS = {
    "--temp 0.1": ("temperature", 0.1),
    "--temperature 0.1": ("temperature", 0.1),
    "--top-k 3": ("top_k", 3),
    "--top-p 0.5": ("top_p", 0.5),
    "--min-p 0.5": ("min_p", 0.5),
    "--typical 0.5": ("typical_p", 0.5),
    "--repeat-penalty 1.1": ("repeat_penalty", 1.1),
    "--repeat-last-n 7": ("repeat_last_n", 7),
    "--repeat-last-n -1": ("repeat_last_n", 128),
    "--presence-penalty 0.5": ("presence_penalty", 0.5),
    "--frequency-penalty 0.5": ("frequency_penalty", 0.5),
    "--dry-multiplier 0.5": ("dry_multiplier", 0.5),
    "--dry-base 2": ("dry_base", 2),
    "--dry-allowed-length 4": ("dry_allowed_length", 4),
    "--dry-penalty-last-n 99": ("dry_penalty_last_n", 99),
    "--dry-sequence-breaker ;": ("dry_sequence_breakers", (";",)),
    r"--dry-sequence-breaker \n --dry-sequence-breaker :": ("dry_sequence_breakers", ("\n", ":")),
    r"--dry-sequence-breaker a\x2cb,\\,\"": ("dry_sequence_breakers", ("a,b", "\\", '"')),
    "--dry-sequence-breaker ,": ("dry_sequence_breakers", (",",)),
    "--dry-sequence-breaker none": ("dry_sequence_breakers", ()),
    "--xtc-probability 0.5": ("xtc_probability", 0.5),
    "--xtc-threshold 0.2": ("xtc_threshold", 0.2),
    "--top-nsigma 1.5": ("top_n_sigma", 1.5),
    "--top-n-sigma 1.5": ("top_n_sigma", 1.5),
    "--dynatemp-range 0.5": ("dynatemp_range", 0.5),
    "--dynatemp-exp 1.5": ("dynatemp_exponent", 1.5),
    "--samplers top_k;typical-p;temperature": ("samplers", ("top_k", "typ_p", "temperature")),
    "--samplers top_k": ("samplers", ("top_k",)),
    "--sampler-seq kpt": ("samplers", ("top_k", "top_p", "temperature")),
    "--ignore-eos": ("ignore_eos", True),
    "-s 11": ("seed", 11),
    "--seed 11": ("seed", 11),
}


@pytest.fixture
def given(lead):
    """Give the lead a command line."""

    def given(typed):
        defaults = LeadSettings.from_command_line(typed.split()).sampling
        state = lead.app.state
        state.services = dataclasses.replace(state.services, defaults=defaults)
        lead.will_say("x")

    return given


@pytest.mark.parametrize(("typed", "expected"), OPTIONS.items())
async def test_an_option_is_the_default_of_a_request(lead, client, given, typed, expected):
    given(typed)
    await client.post(URL, json={"prompt": "Once"})
    name, value = expected
    assert getattr(lead.engine.submitted[0].sampling, name) == value


@pytest.mark.parametrize(("name", "value"), [("temperature", 0.7), ("seed", 5), ("repeat_last_n", 9)])
async def test_a_request_overrides_an_option(lead, client, given, name, value):
    given("--temp 0.1 --seed 11 --repeat-last-n 7")
    await client.post(URL, json={"prompt": "Once", name: value})
    assert getattr(lead.engine.submitted[0].sampling, name) == value


async def test_a_dry_base_below_one_is_replaced_by_the_default(lead, client, given):
    given("--dry-base 2")
    await client.post(URL, json={"prompt": "Once", "dry_base": 0.5})
    assert lead.engine.submitted[0].sampling.dry_base == 2


def test_defaults_can_be_set_in_a_file(tmp_path):
    path = tmp_path / "lead.toml"
    path.write_text('samplers = ["top_k", "temperature"]\ndry-sequence-breakers = ["\\n", ","]\n')
    settings = LeadSettings.from_command_line(["--config", str(path)])
    assert settings.sampling.samplers == ("top_k", "temperature")
    assert settings.sampling.dry_sequence_breakers == ("\n", ",")


@pytest.mark.parametrize(("asked", "n"), [(3, 3), (30, 30), (-1, 10), (None, 10)])
async def test_the_length_of_an_answer_has_a_default(lead, client, given, asked, n):
    given("-n 10")
    await client.post(URL, json={"prompt": "Once", "max_tokens": asked})
    assert lead.engine.submitted[0].max_tokens == n


async def test_without_a_seed_each_request_gets_its_own(lead, client, given):
    given("--temp 0.5")
    for _ in range(2):
        await client.post(URL, json={"prompt": "Once"})
    first, second = (request.sampling.seed for request in lead.engine.submitted)
    assert first != second


async def test_props_show_the_defaults(client, given):
    given("--temp 0.1 -n 10")
    shown = (await client.get("/props")).json()["default_generation_settings"]["params"]
    assert (shown["temperature"], shown["n_predict"], shown["top_k"]) == (0.1, 10, 40)


def test_without_options_the_defaults_are_those_of_sampling_parameters():
    assert SamplingDefaults().parameters() == {}
    plain = SamplingParameters(seed=0)
    shared = SamplingDefaults.model_fields.keys() & SamplingParameters.model_fields.keys() - {"seed"}
    assert all(getattr(SamplingDefaults(), name) == getattr(plain, name) for name in shared)


@pytest.mark.parametrize(
    "wrong", ["--temp -1", "--top-p 2", "--top-k x", "--seed -2", "--repeat-penalty 0", "--dry-base 0.5"]
)
def test_options_have_the_limits_of_request_fields(wrong, capsys):
    with pytest.raises(SystemExit):
        LeadSettings.from_command_line(wrong.split())
    assert f"lead: {wrong.split()[0]}: Input should be" in capsys.readouterr().err


def test_an_unknown_sampler_is_reported(capsys):
    with pytest.raises(SystemExit):
        LeadSettings.from_command_line(["--samplers", "top_k;magic"])
    assert "'magic' is not one of penalties, dry" in capsys.readouterr().err
