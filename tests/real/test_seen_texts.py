"""A real lead drafts from what the same key has sent before, and from nothing of others."""

import httpx
import pytest

from tests.real.client import TIMEOUT_S, chat

pytestmark = pytest.mark.real


def ask(url, key, **fields):
    """(text, draft tokens from earlier texts that were accepted)"""
    response = httpx.post(
        f"{url}/v1/chat/completions",
        json=chat(max_tokens=60, **fields),
        headers={"x-api-key": key},
        trust_env=False,
        timeout=TIMEOUT_S,
    )
    assert response.status_code == 200, response.text
    answer = response.json()
    details = answer["usage"]["completion_tokens_details"]
    return answer["choices"][0]["message"]["content"], details.get("suffix_accepted_tokens", 0)


def test_an_answer_that_was_given_before_is_drafted_for_its_key_alone(own_lead):
    _, url = own_lead("--suffix-memory", "8", "--policy", "fixed", "--api-key", "one,two")
    ask(url, "two", private=True)
    text, n_first = ask(url, "one")
    again, n_again = ask(url, "one")
    others, n_others = ask(url, "two")
    private, n_private = ask(url, "one", private=True)
    assert text == again == others == private
    assert n_again > 30
    assert (n_first, n_others, n_private) == (0, 0, 0)
