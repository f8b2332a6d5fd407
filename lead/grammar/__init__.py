"""Grammars that constrain an answer, as text that llguidance reads (a variant of Lark).

`json_schema` checks JSON schemas of clients, `json_rules` converts them, `gbnf` converts llama.cpp's
grammars; `lark` decides whether a grammar may be used. All raise RequestError naming the field.
"""
