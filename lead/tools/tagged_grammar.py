"""The grammar of arguments that are written one by one, in llguidance's Lark."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from lead.grammar.lark import literal, spelled, text_up_to
from lead.grammar.references import Addresses
from lead.tools.argument_types import ANY_TYPE, Types, kinds_of, types_of
from lead.tools.call_format import TaggedArguments

_ANY_NAME = r"/[A-Za-z_][A-Za-z0-9_.-]*/"
_UNESCAPED = r"/[^'\\\n]*/"
_PYTHON_STRINGS = (r"'(?:[^'\\]|\\.)%s'", r'"(?:[^"\\]|\\.)%s"')
"""Python's strings, which may contain line breaks: templates write these unescaped."""
_MAX_FOLLOWED = 8
"""The maximum number of references that are followed in a row, as a schema may refer to itself."""
_DEFINITIONS = ("$defs", "definitions")


class TaggedGrammar:
    """Writes rules for the arguments of one tool after another."""

    def __init__(
        self,
        arguments: TaggedArguments,
        rules: list[str],
        json_value: Callable[[object, str], str],
        special_tokens: Mapping[str, int],
    ) -> None:
        """rules: the list to add rules to. json_value: adds a rule for JSON of a schema; returns the rule's
        name.
        """
        self._arguments = arguments
        self._rules = rules
        self._json_value = json_value
        self._special_tokens = special_tokens
        self._addresses = Addresses({})  # of the tool's schema

    def of(self, parameters: Mapping[str, Any]) -> str:
        """Return an expression for all arguments of a tool, in the order of the properties in its schema."""
        self._addresses = Addresses(parameters)
        definitions = {name: parameters[name] for name in _DEFINITIONS if name in parameters}
        properties = parameters.get("properties")
        if not isinstance(properties, dict) or not properties:
            return self._any_arguments() if parameters.get("additionalProperties", True) is not False else ""
        required = parameters.get("required", [])
        each = [
            (self._argument(name, schema, definitions), name in required)
            for name, schema in properties.items()
        ]
        return self._in_order(each)

    def _in_order(self, arguments: list[tuple[str, bool]]) -> str:
        between = self._spelled(self._arguments.between)
        if not between:
            return " ".join(each if is_required else f"({each})?" for each, is_required in arguments)
        # With a text between arguments: both are the expression from this argument on, `first` if there is no
        # earlier argument, `rest` if there is one.
        first, rest = "", ""
        for each, is_required in reversed(arguments):
            after = f"({each} {rest})"
            first = after if is_required else self._rule(f"{after} | {first}" if first else f"({after})?")
            rest = (
                f"{between} {after}"
                if is_required
                else self._rule(f"({between} {after}) | ({rest})" if rest else f"({between} {after})?")
            )
        return first

    def _rule(self, body: str) -> str:
        name = f"arguments{len(self._rules)}"
        self._rules.append(f"{name}: {body}")
        return name

    def _argument(self, name: str, schema: object, definitions: Mapping[str, Any]) -> str:
        """Add a rule for one argument, because it may occur in two places; return the rule's name."""
        schema = self._followed(schema)
        own = {**definitions, **schema} if isinstance(schema, dict) else {}
        types = types_of(own, self._addresses)
        ways: dict[str, Types] = {}
        for kind in sorted(types):
            middle = self._arguments.middles.get(kind, self._arguments.middles["string"])
            ways[middle] = ways.get(middle, frozenset()) | {kind}
        bodies = (
            f"{self._spelled(self._arguments.key + name + middle)} {self._value(own, kinds)}"
            for middle, kinds in ways.items()
        )
        return self._rule(" | ".join(bodies))

    def _value(self, schema: Mapping[str, Any], types: Types) -> str:
        """Return an expression for a value and the text that closes it."""
        close = self._spelled(self._arguments.close)
        if "string" not in types:
            return f"{self._json_value(self._of_types(schema, types), 'tools')} {close}".strip()
        schema = self._for_strings(schema)
        choices = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(choices, list):
            may_be = [each for each in choices if kinds_of(each) & types]
            return f"({self._choices(may_be)}) {close}".strip()
        if self._arguments.quotes[0]:
            return f"{self._quoted(schema)} {close}".strip()
        if limited := self._limited(schema):
            return f"{limited} {close}"
        return self._text_up_to(self._arguments.close)

    def _choices(self, values: list[object]) -> str:
        """Return an expression for one of these values; strings are written as they are, or quoted as in the
        template.
        """
        opening, closing = self._arguments.quotes
        texts = (each if isinstance(each, str) else json.dumps(each) for each in values)
        marks = ((opening, closing) if isinstance(each, str) else ("", "") for each in values)
        return " | ".join(
            literal(f"{start}{text}{end}") for text, (start, end) in zip(texts, marks, strict=True)
        )

    def _quoted(self, schema: Mapping[str, Any]) -> str:
        opening, closing = self._arguments.quotes
        if opening in {"'", '"'}:
            if patterns := _patterns(schema):  # of texts that need no escapes
                return f'"\'" {self._all_of([*patterns, *_lengths(schema), _UNESCAPED])} "\'"'
            length = _length(schema) or "*"
            return f"/{'|'.join(each % length for each in _PYTHON_STRINGS)}/"
        if limited := self._limited(schema):
            return f"{self._spelled(opening)} {limited} {self._spelled(closing)}"
        return f"{self._spelled(opening)} {self._text_up_to(closing)}"

    def _limited(self, schema: Mapping[str, Any]) -> str:
        """Return an expression for a string with patterns or a limited length; empty if it has neither."""
        return self._all_of([*_patterns(schema), *_lengths(schema)])

    def _all_of(self, expressions: list[str]) -> str:
        if len(expressions) < 2:  # noqa: PLR2004 - nothing to combine
            return "".join(expressions)
        name = f"LIMITED{len(self._rules)}"
        self._rules.append(f"{name}: {' & '.join(expressions)}")
        return name

    def _text_up_to(self, mark: str) -> str:
        return text_up_to(mark, f"text{len(self._rules)}", self._rules, self._special_tokens)

    def _any_arguments(self) -> str:
        arguments = self._arguments
        body = f"{self._spelled(arguments.key)} {_ANY_NAME} {self._spelled(arguments.middles['string'])}"
        value = self._value({}, ANY_TYPE & {"string"})
        each = self._rule(f"{body} {value}")
        between = self._spelled(arguments.between)
        return f"({each} ({between} {each})*)?" if between else f"({each})*"

    def _spelled(self, text: str) -> str:
        return spelled(text, self._special_tokens) if text else ""

    def _followed(self, schema: object) -> object:
        """Return the schema that `schema` refers to, if it is only a reference."""
        for _ in range(_MAX_FOLLOWED):
            if not isinstance(schema, dict) or schema.keys() != {"$ref"}:
                break
            _, schema = self._addresses.resolve(schema["$ref"])
        return schema

    def _for_strings(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the schema with its alternative for strings; unchanged unless there is exactly one."""
        ways = [self._followed(each) for name in ("anyOf", "oneOf") for each in schema.get(name, ())]
        texts = ("string" in types_of(each, self._addresses) for each in ways)
        own = [each for each, is_text in zip(ways, texts, strict=True) if is_text and isinstance(each, dict)]
        return {**schema, **own[0]} if len(own) == 1 else schema

    def _of_types(self, schema: Mapping[str, Any], types: Types) -> Mapping[str, Any]:
        """Return the schema limited to these types, which are among its own."""
        if types == types_of(schema, self._addresses):
            return schema
        if isinstance(given := schema.get("enum"), list):
            return {**schema, "enum": [each for each in given if not isinstance(each, str)]}
        if isinstance(given := schema.get("type"), list):
            return {**schema, "type": [each for each in given if each in types]}
        return {**schema, "allOf": [*schema.get("allOf", []), {"type": sorted(types)}]}


def _patterns(schema: Mapping[str, Any]) -> list[str]:
    """Return regular expressions; a string must match all of them."""
    parts = [schema, *(each for each in schema.get("allOf", ()) if isinstance(each, dict))]
    return [_whole(each["pattern"]) for each in parts if isinstance(each.get("pattern"), str)]


def _lengths(schema: Mapping[str, Any]) -> list[str]:
    """Return a regular expression for the allowed lengths of strings, in a list; empty: no limit."""
    return [f"/(?s:.{length})/"] if (length := _length(schema)) else []


def _whole(pattern: str) -> str:
    """Return a regular expression for all texts in which the pattern occurs."""
    start, end = "" if pattern.startswith("^") else "(?s:.*)", "" if pattern.endswith("$") else "(?s:.*)"
    inner = pattern.removeprefix("^").removesuffix("$").replace("/", r"\/")
    return f"/{start}(?:{inner}){end}/"


def _length(schema: Mapping[str, Any]) -> str:
    """Return the repetition of a character in a regular expression; empty: any number."""
    minimum, maximum = schema.get("minLength", 0), schema.get("maxLength", "")
    return f"{{{int(minimum)},{maximum}}}" if minimum or maximum != "" else ""
