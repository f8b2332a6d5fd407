import random

import llama_cpp
import numpy as np
import pytest

from lead.grammar.gbnf import gbnf_to_lark
from lead.grammar.lark import check_grammar
from lead.settings.limits import RequestLimits
from shared.errors import RequestError
from shared.sampling.grammar import GrammarMatcher
from shared.sampling.native_chain import NativeChain

GRAMMARS = [
    'root ::= "a" | "b"\n',
    'root ::= [a-z]+ "s"',
    'root ::= ("a" | "ab") [a-c]* "c"',
    'root ::= "abc" | "ab" [c-z]? "d"',
    'root ::= w (" " w)*\nw ::= [a-z]+ | "the" | "th"',
    'root ::= ("a" | ) "b"{2,3} x?\nx ::= | "q" x',
    'root ::=\n  "a" |\n  "b" # why\nother ::= root',
    'root ::= (\n "a"\n | [a-e]+ ){2,} "x"{2} "y"{0,1}',
    r'root ::= [^"\\\x7F\]\x00-\x1F-]{2,} "\"\n"? [\u00e4\U0001F600]',
    'root ::= "(" root ")" | ""',
    "root ::= a-b\na-b ::= [0-9]{1,16} x?\nx ::= [-+]",
    'root ::= [a-] [\\]^x] "é" [à-ü]+ "€"?',
    "root ::= e\ne ::= t ([-+*/] t)*\nt ::= [0-9]+ | " + '"(" e ")"',
    'root ::= ("a"{1,2}){2}',
    'root ::= <[12]> "a" <[13]>',
    'root ::= <|im_start|> "a"',
]

WRONG = {
    "": 'no rule "root"',
    'x ::= "a"': 'no rule "root"',
    'root ::= "a': "not GBNF",
    r'root ::= "\q"': "not GBNF",
    'root = "a"': "not GBNF",
    "root ::= x": '"x" is used but not defined',
    'root ::= "a" )': "the end of the line",
    'root ::= ("a"': "a closing parenthesis",
    "root ::= *": "nothing precedes the repetition",
    'root ::= ""*': "nothing precedes the repetition",
    'root ::= "a"{3000}': "more than 2000 repetitions",
    'root ::= "a"{3,2}': "out of order",
    "root ::= []": "has no characters",
    r'root ::= "\U00110000"': "is not a character",
    'root ::= "a" "b"\n"c"': "the name of a rule",
    "root ::= <|no such token|>": "not a token of this model",
    "root ::= " + "(" * 65 + '"a"' + ")" * 65: "more than 64 levels",
    "root ::= x0\n"
    + "\n".join(f'x{i} ::= "a" x{i + 1} | "b"' for i in range(2000))
    + '\nx2000 ::= "c"': "rules",
}


def convert(text, vocabulary=None, limits=None):
    special = vocabulary.special_tokens if vocabulary else {}
    return gbnf_to_lark(text, special.get, limits or RequestLimits())


class LlamaGrammar:
    """llama.cpp's own grammar parser."""

    def __init__(self, text, vocabulary):
        self._ids = np.arange(vocabulary.n_tokens, dtype=np.int32)
        sampler = llama_cpp.llama_sampler_init_grammar(vocabulary.native, text.encode(), b"root")
        assert sampler
        self._chain = NativeChain([sampler])

    def allowed(self):
        ids, logits = self._chain.apply(self._ids, np.zeros(len(self._ids), np.float32), are_sorted=False)
        return set(ids[logits == 0].tolist())

    def accept(self, token):
        self._chain.accept(token)


@pytest.mark.parametrize("text", GRAMMARS)
def test_the_same_tokens_are_allowed_as_by_llama_cpp(vocabulary, text):
    """Pieces that are not UTF-8, or are the text of a special token, are exempt: no text has them."""
    no_text = {t for t in range(vocabulary.n_tokens) if vocabulary.piece(t)[:1] > b"\xf4"}
    no_text |= set(vocabulary.special_tokens.values()) - vocabulary.end_tokens
    names_tokens = "<" in text
    for seed in range(3):
        rng = random.Random(seed)
        theirs = LlamaGrammar(text, vocabulary)
        ours = GrammarMatcher(convert(text, vocabulary), vocabulary)
        for _ in range(20):
            allowed = set(ours.allowed().tolist())
            assert allowed == theirs.allowed() - (set() if names_tokens else no_text)
            token = rng.choice(sorted(allowed))
            if token in vocabulary.end_tokens:
                break
            assert ours.accept(token)
            theirs.accept(token)


@pytest.mark.parametrize("text", WRONG)
def test_what_is_not_gbnf_is_refused_with_what_is_wrong(text):
    with pytest.raises(RequestError, match=r"^grammar: ") as caught:
        convert(text)
    assert WRONG[text] in str(caught.value)
    assert caught.value.param == "grammar"


def test_left_recursion_is_no_error(vocabulary, accepts):
    grammar = convert('root ::= root "a" | "b"')
    check_grammar(grammar, vocabulary, "grammar")
    assert accepts(grammar, "baa")


def test_any_token_but_one(vocabulary):
    allowed = GrammarMatcher(convert('root ::= !<[12]> "a"'), vocabulary).allowed()
    assert sorted({*range(vocabulary.n_tokens)} - set(allowed)) == sorted({12, *vocabulary.end_tokens})


def test_as_many_rules_as_are_taken_can_follow_each_other(vocabulary):
    rules = "\n".join(f'x{i} ::= "a" x{i + 1} | "b"' for i in range(900))
    check_grammar(convert(f'root ::= x0\n{rules}\nx900 ::= "c"'), vocabulary, "grammar")


def test_the_size_is_bounded_as_the_client_wrote_it():
    convert('root ::= "ä"', limits=RequestLimits(max_grammar_bytes=13))
    with pytest.raises(RequestError, match="13 bytes of grammar; at most 12"):
        convert('root ::= "ä"', limits=RequestLimits(max_grammar_bytes=12))
