import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.grammar import check_grammar
from lead.grammar.gbnf import GrammarError, parse_gbnf
from lead.grammar.shape import check_shape
from lead.settings.limits import RequestLimits
from shared.errors import RequestError
from shared.llama.grammar import can_parse

GOOD = [
    'root ::= "a"',
    'root ::= "a" | "b"\n',
    'root ::=\n  "a" |\n  "b" # why\nother ::= root',
    'root ::= (\n "a"\n | [a-z]+ )* .',
    r'root ::= [^"\\\x7F\u00e4\U0001F600\]-]{2,} "\"\n"?',
    'root ::= "(" root ")" | ""',
    "root ::= a-b\na-b ::= [0-9]{1,16} x?\nx ::= [-+]",
    "root ::= <[12]> !<[13]>",
    "root ::= <|end|>",
]

BAD = {
    "": 'no rule "root"',
    'x ::= "a"': 'no rule "root"',
    'root ::= "a': "not GBNF",
    r'root ::= "\q"': "not GBNF",
    'root = "a"': "not GBNF",
    "root ::= x": '"x" is used but not defined',
    'root ::= "a" )': "the end of the line",
    'root ::= ("a"': "a closing parenthesis",
    "root ::= *": "nothing to repeat",
    'root ::= ""*': "nothing to repeat",
    'root ::= "a"{3000}': "more than 2000 repetitions",
    'root ::= ("a"{0,100}){100}': "more than 2000 repetitions",
    'root ::= "a"{3,2}': "out of order",
    'root ::= root "a" | "b"': "left recursion",
    'root ::= ("a"?)*': "may be empty",
    'root ::= "\ud800"': "surrogate",
    'root ::= "\0"': "NUL",
    'root ::= "a" "b"\n"c"': "the name of a rule",
}


@pytest.mark.parametrize("text", GOOD)
def test_a_grammar_passes(text):
    check_grammar(text, RequestLimits())


@pytest.mark.parametrize("text", BAD)
def test_a_wrong_grammar_is_refused_with_what_is_wrong(text):
    with pytest.raises(RequestError, match=r"^grammar: ") as caught:
        check_grammar(text, RequestLimits())
    assert BAD[text] in str(caught.value)
    assert caught.value.param == "grammar"


def test_left_recursion_behind_rules_that_may_be_empty_is_found():
    """llama.cpp only sees that z may be empty, and would never come to an end with x."""
    with pytest.raises(RequestError, match="left recursion"):
        check_grammar('root ::= x\nx ::= y x "a" | "b"\ny ::= z\nz ::= "q"?', RequestLimits())


def test_parentheses_may_only_be_so_deep():
    def nested(depth):
        return "root ::= " + "(" * depth + '"a"' + ")" * depth

    check_grammar(nested(10), RequestLimits(max_grammar_nesting=10))
    with pytest.raises(RequestError, match="more than 10 levels"):
        check_grammar(nested(11), RequestLimits(max_grammar_nesting=10))
    with pytest.raises(RequestError, match="more than 64 levels"):
        check_grammar(nested(20_000), RequestLimits())


def test_a_grammar_may_only_be_so_large():
    check_grammar('root ::= "ä"', RequestLimits(max_grammar_bytes=13))
    with pytest.raises(RequestError, match="13 bytes of grammar; at most 12"):
        check_grammar('root ::= "ä"', RequestLimits(max_grammar_bytes=12))


def test_what_repetitions_make_of_it_is_bounded():
    with pytest.raises(RequestError, match="elements"):
        check_grammar(f'root ::= "{"x" * 1000}"{{2000}}', RequestLimits())


def test_ways_that_multiply_are_counted_without_being_gone():
    rules = [f'r{i} ::= r{i + 1}? r{i + 1}? "x"' for i in range(60)]
    with pytest.raises(RequestError, match="ways"):
        check_grammar("\n".join([*rules, 'r60 ::= "a"', "root ::= r0"]), RequestLimits())


@given(st.text(alphabet='ab"()[]{}|*+?.,2:=- \n\\#<>!^', max_size=30))
def test_what_is_let_pass_llama_cpp_can_parse(text):
    grammar = f"root ::= {text}\na ::= [a]\nb ::= [b]"
    try:
        parsed = parse_gbnf(grammar, 8)
        check_shape(parsed)
    except GrammarError:
        return
    assert parsed.names_tokens or can_parse(grammar)
