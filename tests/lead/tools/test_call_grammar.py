import pytest

from lead.chat_format.output_format import ReasoningMarkers
from lead.grammar.lark import check_grammar
from lead.settings.limits import RequestLimits
from lead.tools.call_grammar import call_grammars
from shared.errors import RequestError
from shared.sampling.followed_calls import FollowedCalls
from tests.lead.chat_format.cases import asked, formats, template, typed_tool, with_tools

THINK = ReasoningMarkers("<think>", "</think>")
HERMES = template("Qwen-Qwen2.5-7B-Instruct").tool_format


def calls(tool_format, *names):
    return tool_format.write([(name, {"a": 1}) for name in names])


@pytest.fixture(scope="module")
def known(vocabulary):
    """The grammars of calls, and the problems with tools."""

    def known(request, tool_format, reasoning=None, *, said=""):
        return call_grammars(
            tool_format,
            request,
            reasoning,
            said=said,
            limits=RequestLimits(),
            special_tokens=vocabulary.special_tokens,
            check_grammar=lambda grammar: check_grammar(grammar, vocabulary, "tools"),
        )

    return known


@pytest.fixture(scope="module")
def writes(vocabulary, known):
    """Return whether a model may write a text in which calls may begin anywhere."""

    def writes(text, request, tool_format, reasoning=None, *, said=""):
        calls, problems = known(request, tool_format, reasoning, said=said)
        assert not problems
        constraint = FollowedCalls(calls, vocabulary)
        for token in vocabulary.tokenize(text, add_special=False, parse_special=True):
            if not constraint.allows([token])[0]:
                return False
            constraint.accept(token)
        return constraint.allows([min(vocabulary.end_tokens)])[0]

    return writes


OWN_FORMATS = {name: each for name, each in formats().items() if not each.is_generic}


@pytest.mark.parametrize("tool_format", OWN_FORMATS.values(), ids=OWN_FORMATS.keys())
def test_a_call_that_has_begun_has_arguments_of_its_schema(writes, tool_format):
    several = ["addition"] if tool_format.between is not None else []
    before = "" if tool_format.json_only else "I will add. "
    for names in (["add"], ["add", *several], ['odd "\\ name']):
        good = before + tool_format.write([(name, {"a": 1}) for name in names])
        assert writes(good, with_tools(), tool_format)
        assert writes(f"{good}\nSo be it.", with_tools(), tool_format)
        wrong = [(name, {"a": 1}) for name in names[:-1]] + [(names[-1], {"a": "b"})]
        assert not writes(before + tool_format.write(wrong), with_tools(), tool_format)


@pytest.mark.parametrize("tool_format", OWN_FORMATS.values(), ids=OWN_FORMATS.keys())
def test_a_string_is_written_as_the_model_would_without_a_grammar(writes, tool_format):
    request = asked(tools=[typed_tool("run", {"properties": {"cmd": {"type": "string"}}})])
    for text in ("it's", 'a "b"', "cat <<'EOF'\n\"x\"\nEOF\n", "back\\slash", "{[(", "é 中 👋", "</b>", ""):
        assert writes(tool_format.write([("run", {"cmd": text})]), request, tool_format), text


@pytest.mark.parametrize("tool_format", OWN_FORMATS.values(), ids=OWN_FORMATS.keys())
def test_text_in_which_no_call_begins_is_free(writes, tool_format):
    for text in ("Hello", "{", *tool_format.starts, tool_format.write([("subtract", {"a": "b"})])):
        assert writes(f"{text} ", with_tools(), tool_format)
    assert writes(f'A call is {tool_format.starts[:1]}: add {{"a": "b"}}', with_tools(), tool_format)


@pytest.mark.parametrize("tool_format", OWN_FORMATS.values(), ids=OWN_FORMATS.keys())
def test_reasoning_may_have_any_calls(writes, tool_format):
    wrong = tool_format.write([("add", {"a": "b"})])
    assert writes(f"{wrong}</think>", with_tools(), tool_format, THINK, said="<think>")
    assert writes(f"<think>{wrong}</think>\n{calls(tool_format, 'add')}", with_tools(), tool_format, THINK)
    assert not writes(f"<think>Well.</think>\n{wrong}", with_tools(), tool_format, THINK)


def test_calls_of_a_tool_whose_schema_is_refused_are_free(known):
    request = asked(
        tools=[typed_tool("add"), typed_tool("find", {"properties": {"a": {"pattern": r"\bword"}}})]
    )
    grammars, problems = known(request, HERMES)
    assert grammars.grammars.keys() == {"add"}
    assert [problem.split(": #")[0] for problem in problems] == ["tools: find"]


def test_a_strict_tool_whose_schema_is_refused_is_an_error(known):
    function = {"name": "find", "strict": True, "parameters": {"properties": {"a": {"pattern": r"\bword"}}}}
    request = asked(tools=[{"type": "function", "function": function}])
    with pytest.raises(RequestError, match=r"^tools: find: "):
        known(request, HERMES)
