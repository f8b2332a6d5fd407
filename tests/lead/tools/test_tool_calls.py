import pytest

from lead.tools.tool_calls import parse_python_call


@pytest.mark.parametrize(
    ("code", "called"),
    [
        ("add.call(a=1)", ("add", {"a": 1})),
        ('add(a=1, b="x, \\"y\\"", c=true)', ("add", {"a": 1, "b": 'x, "y"', "c": True})),
        (" add() ", ("add", {})),
        ("add.call(a=None)", ("add", {"a": "None"})),
        ("print(1)", ("python", {"code": "print(1)"})),
        ("sub.call(a=1)", ("python", {"code": "sub.call(a=1)"})),
        ("", None),
    ],
)
def test_code_calls_a_tool_by_its_name_or_else_the_interpreter(code, called):
    assert parse_python_call(code, {"add", "python"}) == called


def test_code_without_an_interpreter_is_not_a_call():
    assert parse_python_call("print(1)", {"add"}) is None


@pytest.mark.parametrize("arguments", ["a" * 500_000, " " * 500_000, 'a="' + "b" * 500_000, "a " * 200_000])
def test_reading_arguments_takes_time_in_proportion_to_their_length(arguments):
    assert parse_python_call(f"add({arguments})", {"add"}) == ("add", {})  # a quadratic one would take hours
