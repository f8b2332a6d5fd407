"""Grammars: what constrains an answer, as text that llguidance reads (a variant of Lark).

`json_schema` and `gbnf` write such texts for clients' JSON schemas and llama.cpp grammars, `check` decides
whether one may run. All raise RequestError naming the field.
"""

from lead.grammar.gbnf import gbnf_to_lark
from lead.grammar.json_schema import JSON_OBJECT, check_schema
from lead.grammar.lark import check_grammar, check_size, json_rule, lark_grammar, literal, spelled

__all__ = [
    "JSON_OBJECT",
    "check_grammar",
    "check_schema",
    "check_size",
    "gbnf_to_lark",
    "json_rule",
    "lark_grammar",
    "literal",
    "spelled",
]
