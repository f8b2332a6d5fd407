import pytest

from shared.llama.vocabulary import Vocabulary
from tests.lead.http.event_streams import events
from tests.tiny_models import write_fim_vocabulary

GAP = {"input_prefix": "Once ", "input_suffix": " the end.", "input_extra": [{"text": "A fox"}]}


@pytest.fixture
def fills_gaps(lead, tmp_path):
    """A lead whose model has tokens for gaps."""
    path = write_fim_vocabulary(tmp_path / "fim.gguf", pre=4000, suf=4001, mid=4002)
    lead.use(vocabulary=Vocabulary.load(path))


@pytest.mark.usefixtures("fills_gaps")
async def test_a_gap_is_filled_in_the_form_of_completions(lead, client):
    lead.will_say("upon a time")
    body = (await client.post("/infill", json=GAP | {"n_predict": 9, "n_indent": 2})).json()
    assert (body["content"], body["stop_type"]) == ("upon a time", "eos")
    (submission,) = lead.engine.submitted
    assert {4000, 4001, 4002} < set(submission.tokens)
    assert submission.tokens[-1] == 4002
    assert body["tokens_evaluated"] == len(submission.tokens)
    assert submission.max_tokens == 9


@pytest.mark.usefixtures("fills_gaps")
async def test_the_answer_to_a_gap_is_streamed(lead, client):
    lead.will_say("upon a time")
    response = await client.post("/infill", json=GAP | {"stream": True})
    assert "".join(event["content"] for event in events(response)) == "upon a time"


@pytest.mark.usefixtures("fills_gaps")
@pytest.mark.parametrize(
    "wrong",
    [
        {"input_prefix": None},
        {"input_suffix": None},
        {"prompt": ["a"]},
        {"input_extra": "a"},
        {"input_extra": [{"filename": "a"}]},
        {"input_extra": [{"text": 1}]},
        {"input_extra": [{"text": ""}] * 1025},
    ],
)
async def test_a_gap_that_is_not_described_is_an_error(lead, client, wrong):
    response = await client.post("/infill", json=GAP | wrong)
    assert response.status_code == 400
    assert response.json()["error"]["param"] in wrong
    assert not lead.engine.submitted


async def test_a_model_without_tokens_for_gaps_says_so(client):
    response = await client.post("/infill", json=GAP)
    assert response.status_code == 501
    assert response.json()["error"]["message"].startswith(
        "Infill is not supported by this model: prefix token is missing."
    )
