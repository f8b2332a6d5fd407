import pytest

from lead.tools.call_format import NAME, CallFormat
from lead.tools.known_formats import GENERIC, completed, format_without_calls
from tests.lead.chat_format.cases import load, template


def test_a_template_without_any_sign_of_tools_is_generic():
    assert format_without_calls("{{ messages }}") is GENERIC


def test_only_templates_without_tools_are_generic_and_one_that_nests_arguments_in_tags():
    generic = {name for name in load("templates.toml") if template(name).tool_format.is_generic}
    assert {name for name in generic if template(name).capabilities.tools} == {"MiniMax-M3"}


@pytest.mark.parametrize(("sign", "field"), [("<|python_tag|>", "code_tag"), ("<|channel|>", "starts")])
def test_what_a_template_does_not_show_is_added(sign, field):
    calls = CallFormat(f"{NAME}\n", between="; ")
    assert getattr(completed(calls, sign), field) != getattr(calls, field)
    assert completed(calls, "") == calls
