from lead.grammar import lark_grammar, literal, spelled

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
