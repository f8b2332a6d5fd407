"""A real lead drafts from texts that the same key has sent before, and from no texts of others."""

import pytest

from tests.real.client import ask

pytestmark = pytest.mark.real

SHORT = {"max_tokens": 60}


def test_an_answer_that_was_given_before_is_drafted_for_its_key_alone(own_lead):
    _, url = own_lead("--suffix-memory", "8", "--policy", "fixed", "--api-key", "one,two")
    ask(url, key="two", private=True, **SHORT)
    first, again, others = (ask(url, key=key, **SHORT) for key in ("one", "one", "two"))
    private = ask(url, key="one", private=True, **SHORT)
    assert first.text == again.text == others.text == private.text
    assert again.n_suffix_accepted > 30
    assert [reply.n_suffix_accepted for reply in (first, others, private)] == [0, 0, 0]
