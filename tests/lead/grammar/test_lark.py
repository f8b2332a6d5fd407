import pytest

from lead.grammar.lark import check_grammar, check_size, lark_grammar, literal, spelled
from lead.settings.limits import RequestLimits
from shared.errors import RequestError
from tests.lead.grammar.schemas import grammar_of

SPECIAL = {"<|im_start|>": 1, "<|im_end|>": 2}


def test_text_is_read_as_it_was_written(accepts):
    text = 'a "quoted" \\ <tag>\n/é😀'
    assert accepts(lark_grammar([f"start: {literal(text)}"]), text)


def test_the_text_of_a_special_token_is_that_token_or_its_letters():
    assert spelled("a<|im_start|>b", SPECIAL) == '"a" (<[1]> | "<|im_start|>") "b"'
    assert spelled("ab", SPECIAL) == '"ab"'


def test_a_special_token_matches_no_plain_text(accepts):
    grammar = lark_grammar([f"start: {spelled('a<|im_start|>', SPECIAL)}"])
    assert accepts(grammar, "a<|im_start|>")
    assert not accepts(lark_grammar(['start: "a" /(?s:.)*/']), "a<|im_start|>")


def test_the_size_is_bounded_in_bytes():
    check_size("ä", RequestLimits(max_grammar_bytes=2), "grammar")
    with pytest.raises(RequestError, match=r"^tools: 2 bytes of grammar; at most 1"):
        check_size("ä", RequestLimits(max_grammar_bytes=1), "tools")


def test_what_does_not_compile_is_refused_naming_the_field(vocabulary):
    with pytest.raises(RequestError, match=r"^tools: .*unknown name") as caught:
        check_grammar("start: nothing", vocabulary, "tools")
    assert caught.value.param == "tools"


def test_what_can_begin_in_too_many_ways_is_refused_naming_the_field(vocabulary):
    text = grammar_of({"properties": {f"p{i}": {"type": "string"} for i in range(1500)}})
    with pytest.raises(RequestError, match=r"any further: .*max is 2000") as caught:
        check_grammar(text, vocabulary, "tools")
    assert caught.value.param == "tools"


def test_what_takes_long_to_compile_is_refused(vocabulary, monkeypatch):
    monkeypatch.setattr("lead.grammar.lark._MAX_COMPILE_SECONDS", 0.0)
    with pytest.raises(RequestError, match="takes too long"):
        check_grammar('start: "a"', vocabulary, "grammar")
