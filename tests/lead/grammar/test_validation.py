import pytest

from lead.grammar import check_grammar, check_size
from lead.settings.limits import RequestLimits
from shared.errors import RequestError
from tests.lead.grammar.schemas import grammar_of


def test_the_size_is_bounded_in_bytes():
    check_size("ä", RequestLimits(max_grammar_bytes=2), "grammar")
    with pytest.raises(RequestError, match=r"^tools: 2 bytes of grammar; at most 1"):
        check_size("ä", RequestLimits(max_grammar_bytes=1), "tools")


def test_what_does_not_compile_is_refused_naming_the_field(vocabulary):
    with pytest.raises(RequestError, match=r"^tools: .*unknown name") as caught:
        check_grammar("start: nothing", vocabulary, "tools")
    assert caught.value.param == "tools"


def test_what_can_begin_in_too_many_ways_is_refused_naming_the_field(vocabulary):
    text = grammar_of({"properties": {f"p{i}": {} for i in range(1000)}})
    with pytest.raises(RequestError, match=r"any further: .*max is 2000") as caught:
        check_grammar(text, vocabulary, "tools")
    assert caught.value.param == "tools"


def test_what_takes_long_to_compile_is_refused(vocabulary, monkeypatch):
    monkeypatch.setattr("lead.grammar.validation._MAX_COMPILE_SECONDS", 0.0)
    with pytest.raises(RequestError, match="takes too long"):
        check_grammar('start: "a"', vocabulary, "grammar")
