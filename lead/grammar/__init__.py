"""Grammars: what constrains an answer, as text that llguidance reads (a variant of Lark).

`json_schema` and `gbnf` write such texts for clients' JSON schemas and llama.cpp grammars, `check` decides
whether one may run. All raise RequestError naming the field.
"""
