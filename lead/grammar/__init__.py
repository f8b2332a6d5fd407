"""Grammars: what constrains an answer, checked before any native code sees it.

`check_grammar` for a client's own GBNF, `schema_to_gbnf` for a JSON schema. Both raise RequestError.
"""

from lead.grammar.check import check_grammar
from lead.grammar.schema import JSON_OBJECT, schema_to_gbnf

__all__ = ["JSON_OBJECT", "check_grammar", "schema_to_gbnf"]
