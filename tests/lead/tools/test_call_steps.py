from lead.chat_format.fitting import applied, fitting_steps
from lead.tools.call_steps import object_arguments, simple_tools, steps
from lead.tools.known_formats import GENERIC


def answer(*names, content=""):
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": "[1]"}} for name in names
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def writes_one_call(messages):
    """A template for at most one call in a message."""
    if any(len(each.get("tool_calls", ())) > 1 for each in messages):
        return None
    return str(messages)


def test_several_calls_become_messages_with_one_each():
    given = [answer("one", "two")]
    chosen = fitting_steps(given, steps(GENERIC), writes_one_call)
    assert applied(chosen, given) == [answer("one"), answer("two")]


def test_arguments_that_are_no_object_become_one():
    (message,) = object_arguments([answer("one")])
    assert message["tool_calls"][0]["function"]["arguments"] == {"arguments": "[1]"}


def test_a_template_without_calls_gets_them_as_text():
    given = [answer("one", content="Hm.")]
    chosen = fitting_steps(given, steps(GENERIC), lambda each: "".join(one["content"] for one in each))
    (message,) = applied(chosen, given)
    assert message["content"] == 'Hm.\n\n{"tool_calls": [{"name": "one", "arguments": [1]}]}'


def test_tools_are_described_by_types_that_each_template_knows():
    parameters = {"type": "object", "properties": {"path": {"type": ["array", "null"]}}}
    (tool,) = simple_tools([{"type": "function", "function": {"name": "read", "parameters": parameters}}])
    assert tool["function"]["parameters"]["properties"]["path"]["type"] == "object"
