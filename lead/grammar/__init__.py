"""Grammars: what constrains an answer, as text that llguidance reads (a variant of Lark).

`json_schema` checks JSON schemas of clients, `json_rules` writes them, `gbnf` writes llama.cpp's grammars;
`lark` decides whether a text may run. All raise RequestError naming the field.
"""
