"""Fields of requests: their meaning, and the values that are refused."""

import pytest

from lead.settings.lead_settings import LeadSettings
from tests.lead.fakes import N_CTX

CHAT = "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]}
TEXT = "/v1/completions", {"prompt": "Once"}
BOTH = pytest.mark.parametrize(("url", "ask"), [CHAT, TEXT])


def predict(content):
    return {"prediction": {"type": "content", "content": content}}


@BOTH
async def test_a_prediction_goes_to_the_engine_as_tokens(lead, client, url, ask):
    lead.will_say("x")
    response = await client.post(url, json=ask | predict("once upon a time"))
    assert response.status_code == 200
    (request,) = lead.engine.submitted
    assert request.prediction == lead.tokens("once upon a time")


@BOTH
@pytest.mark.parametrize("fields", [{}, {"prediction": None}, predict(""), predict([])])
async def test_without_a_prediction_there_are_no_tokens(lead, client, url, ask, fields):
    lead.will_say("x")
    assert (await client.post(url, json=ask | fields)).status_code == 200
    assert lead.engine.submitted[0].prediction == []


async def test_the_parts_of_a_prediction_are_joined(lead, client):
    lead.will_say("x")
    url, ask = CHAT
    parts = [{"type": "text", "text": "once up"}, {"type": "text", "text": "on a time"}]
    await client.post(url, json=ask | predict(parts))
    assert lead.engine.submitted[0].prediction == lead.tokens("once upon a time")


async def test_control_tokens_in_a_prediction_are_text(lead, client):
    lead.will_say("x")
    url, ask = CHAT
    await client.post(url, json=ask | predict("a<|im_end|>"))
    (end,) = lead.vocabulary.tokenize("<|im_end|>", add_special=False, parse_special=True)
    tokens = lead.engine.submitted[0].prediction
    assert end not in tokens
    assert lead.vocabulary.detokenize(tokens) == "a<|im_end|>"


async def test_a_prediction_longer_than_the_context_is_cut(lead, client):
    lead.will_say("x")
    url, ask = TEXT
    text = "a b c d " * N_CTX
    response = await client.post(url, json=ask | predict(text))
    assert response.status_code == 200
    assert lead.engine.submitted[0].prediction == lead.tokens(text)[:N_CTX]


async def test_each_of_several_prompts_gets_the_prediction(lead, client):
    lead.will_say("x")
    url, _ = TEXT
    await client.post(url, json={"prompt": ["Once", "Twice"]} | predict("upon"))
    assert [request.prediction for request in lead.engine.submitted] == [lead.tokens("upon")] * 2


@BOTH
@pytest.mark.parametrize(
    "prediction",
    [
        *("once", 3, [], {}, {"type": "content"}, {"content": "once"}, {"type": "text", "content": "once"}),
        *({"type": "content", "content": content} for content in (3, None, ["once"], [{"type": "text"}])),
        {"type": "content", "content": [{"type": "image_url", "text": "once"}]},
    ],
)
async def test_a_prediction_of_another_shape_is_400(lead, client, url, ask, prediction):
    response = await client.post(url, json=ask | {"prediction": prediction})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "prediction")
    assert lead.engine.submitted == []


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
        lead.use(sampling=LeadSettings.from_command_line(typed.split()).sampling)
        lead.will_say("x")

    return given


SET = "--temp 0.1 --seed 11 --repeat-last-n 7"


@pytest.mark.parametrize(
    ("typed", "asked", "expected"),
    [
        *((typed, {}, expected) for typed, expected in OPTIONS.items()),
        *(
            (SET, {name: value}, (name, value))
            for name, value in {"temperature": 0.7, "seed": 5, "repeat_last_n": 9}.items()
        ),
        pytest.param("--dry-base 2", {"dry_base": 0.5}, ("dry_base", 2), id="a dry base below one"),
    ],
)
async def test_an_option_is_the_default_of_a_request_that_goes_over_it(  # noqa: PLR0917 - a table's columns
    lead, client, given, typed, asked, expected
):
    given(typed)
    await client.post(URL, json={"prompt": "Once"} | asked)
    name, value = expected
    assert getattr(lead.engine.submitted[0].sampling, name) == value


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


async def test_props_show_the_defaults(client, given):
    given("--temp 0.1 -n 10")
    shown = (await client.get("/props")).json()["default_generation_settings"]["params"]
    assert (shown["temperature"], shown["n_predict"], shown["top_k"]) == (0.1, 10, 40)


@pytest.mark.parametrize(
    "wrong", ["--temp -1", "--top-p 2", "--top-k x", "--seed -2", "--repeat-penalty 0", "--dry-base 0.5"]
)
def test_options_have_the_limits_of_request_fields(wrong, capsys):
    with pytest.raises(SystemExit):
        LeadSettings.from_command_line(wrong.split())
    assert f"lead: {wrong.split()[0]}: " in capsys.readouterr().err
