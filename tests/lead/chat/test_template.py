import re
import resource

import pytest

from lead.chat import jinja
from lead.chat.jinja import CHATML
from lead.chat.request_parts import ChatMessage, TemplateInput
from lead.chat.template import ChatTemplate
from shared.errors import ConfigError, RequestError

HELLO = [{"role": "user", "content": "Hello"}]
CALL = {"id": "call00001", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
USED = [
    *HELLO,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call00001", "content": "two"},
]
TURNS = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
CALLS = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<{{ c.function.name }} ARGUMENTS>{% endfor %}{% endfor %}"
)
THINKS = TURNS + "{% if add_generation_prompt and enable_thinking is not false %}<think>\n{% endif %}"
TAKES_OUT = TURNS.replace("m.content", "m.content.split('</think>')[-1]")
EMPTY_THOUGHT = TURNS + "{% if add_generation_prompt %}<think>\n\n</think>\n\n{% endif %}"


def render(source, messages=HELLO, tool_use=None, **fields):
    template = ChatTemplate(source, "<s>", "</s>", tool_use)
    return template.render(TemplateInput([ChatMessage(**message) for message in messages], **fields))


def test_a_conversation_ends_where_the_answer_begins():
    assert render(CHATML) == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


def test_a_model_without_a_template_gets_chatml():
    assert render(None) == render(CHATML)


def test_a_template_can_use_the_special_tokens():
    assert render("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}") == "<s>Hello</s>"


def test_json_is_not_escaped_for_html():
    assert render("{{ {'a': '<é>'} | tojson }}" + TURNS).startswith('{"a": "<é>"}[')


def test_blocks_leave_no_empty_lines():
    assert (
        render("{% if true %}\n  {% for m in messages %}\n{{ m.content }}{% endfor %}\n{% endif %}")
        == "Hello"
    )


def test_messages_that_the_template_refuses_are_the_clients_error():
    with pytest.raises(RequestError, match="roles must alternate") as refused:
        render("{{ raise_exception('roles must alternate') }}")
    assert refused.value.param == "messages"


@pytest.mark.parametrize(
    "attack",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ range(10**9) | list }}",
    ],
)
def test_a_hostile_template_cannot_leave_the_sandbox(attack):
    with pytest.raises(RequestError):
        render(attack)


def test_messages_that_the_template_fails_on_are_the_clients_error():
    with pytest.raises(RequestError):
        render("{{ messages[0].content + 1 }}")


def test_text_that_is_not_a_template_is_a_config_error():
    with pytest.raises(ConfigError, match="not Jinja"):
        ChatTemplate("{% if %}", "", "")


def test_a_name_selects_a_built_in_template_of_llama_cpp():
    assert render("gemma") == "<start_of_turn>user\nHello<end_of_turn>\n<start_of_turn>model\n"


def test_a_long_conversation_fits_a_built_in_template():
    words = "word " * 10_000
    assert words.strip() in render("chatml", [{"role": "user", "content": words}])


def test_a_template_that_writes_too_much_is_stopped(monkeypatch):
    monkeypatch.setattr(jinja, "MAX_CHARACTERS", 1000)
    endless = "{% for i in range(90000) %}{{ messages[0].content }}{% endfor %}"
    with pytest.raises(RequestError, match="more than 1000 characters"):
        render(endless)


def test_a_template_that_takes_too_long_is_stopped(monkeypatch):
    monkeypatch.setattr(jinja, "MAX_SECONDS", -1.0)
    with pytest.raises(RequestError, match="takes longer"):
        render(CHATML)


def test_generation_tags_are_ignored():
    assert render("{% generation %}{{ messages[0].content }}{% endgeneration %}") == "Hello"


def test_the_json_filter_takes_the_arguments_of_transformers():
    source = "{{ {'b': 1, 'a': 'é'} | tojson(separators=(',', ':'), sort_keys=true, ensure_ascii=true) }}"
    assert render(source + TURNS).startswith('{"a":"\\u00e9","b":1}[')


def test_a_client_can_set_variables_except_the_messages_and_tokens():
    source = "{{ mood }} {{ messages[0].content }} {{ bos_token }}"
    fields = {"mood": "glad", "messages": [], "bos_token": "x"}
    assert render(source, variables=fields) == "glad Hello <s>"


def test_a_second_template_is_used_for_conversations_with_tools():
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    both = {"tool_use": "with {{ tools[0].function.name }}" + TURNS}
    assert render("plain" + TURNS, **both, tools=[tool]) == "with add[user]Hello[assistant]"
    assert render("plain" + TURNS, **both) == "plain[user]Hello[assistant]"


def test_a_template_that_wants_a_list_of_tools_gets_an_empty_one():
    assert render("{% for t in tools %}x{% endfor %}" + TURNS) == "[user]Hello[assistant]"


def test_the_json_filter_writes_iterators_as_lists():
    assert render("{{ messages | map(attribute='content') | tojson }}") == '["Hello"]'


def test_arguments_are_objects_for_a_template_that_iterates_over_them():
    source = CALLS.replace(
        "ARGUMENTS", "{% for k, v in c.function.arguments | items %}{{ k }}={{ v }}{% endfor %}"
    )
    assert "<add a=1>" in render(source, USED)


def test_documents_are_passed_to_the_template():
    assert render("{{ documents[0].text }}" + TURNS, documents=[{"text": "d"}]) == "d[user]Hello[assistant]"


def test_parts_of_a_content_become_lines():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert render(TURNS, [{"role": "user", "content": parts}]) == "[user]a\nb[assistant]"


def test_a_template_that_expects_parts_gets_parts():
    source = "{% for p in messages[0].content if p.type == 'text' %}({{ p.text }}){% endfor %}"
    assert render(source) == "(Hello)"


def test_developer_messages_become_system_messages_if_the_template_has_none():
    messages = [{"role": "developer", "content": "d"}, *HELLO]
    assert render(TURNS, messages) == "[system]d[user]Hello[assistant]"
    assert render(TURNS + "{# developer #}", messages) == "[developer]d[user]Hello[assistant]"


def test_system_messages_join_the_next_user_message_if_the_template_has_none():
    source = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + TURNS
    messages = [{"role": "system", "content": "s"}, *HELLO]
    assert render(source, messages) == "[user]s\n\nHello[assistant]"


def test_arguments_are_objects_for_a_template_that_writes_json():
    assert '<add {"a": 1}>' in render(CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}"), USED)


def test_arguments_are_text_for_a_template_that_writes_text():
    assert '<add {"a": 1}>' in render(CALLS.replace("ARGUMENTS", "{{ c.function.arguments }}"), USED)
    assert '<add {"a": 1}>' in render(CALLS.replace("ARGUMENTS", "{{ '' + c.function.arguments }}"), USED)


def test_calls_and_results_become_text_if_the_template_has_none():
    source = "{% for m in messages if m.role != 'tool' %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    assert render(source, USED) == (
        '[user]Hello[assistant]{"tool_calls": [{"name": "add", "arguments": {"a": 1}}]}'
        '[user]{"tool_response": {"tool_call_id": "call00001", "content": "two"}}'
    )


@pytest.mark.parametrize(
    ("source", "last", "end"),
    [
        (TURNS, {"content": "It is"}, "[assistant]It is"),
        (
            TURNS,
            {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            "[assistant]a\n\nb",
        ),
        (THINKS, {"content": "It is"}, "[assistant]<think>\n\n</think>\n\nIt is"),
        (THINKS, {"reasoning_content": "Hm", "content": "It is"}, "<think>\nHm\n</think>\n\nIt is"),
        (THINKS, {"reasoning_content": "Hm"}, "[assistant]<think>\nHm"),
        (TAKES_OUT, {"reasoning_content": "Hm"}, "[assistant]<think>Hm"),
        (TAKES_OUT, {"content": "It is"}, "[assistant]It is"),
        *(
            (
                source,
                {"content": "<think>\nHm\n</think>\n\nIt is"},
                "[assistant]<think>\nHm\n</think>\n\nIt is",
            )
            for source in (THINKS, EMPTY_THOUGHT, TAKES_OUT)
        ),
        (THINKS, {"content": "\n<think>Hm"}, "[assistant]<think>Hm"),
        (EMPTY_THOUGHT, {"reasoning_content": "Hm"}, "[assistant]<think>\nHm"),
        (EMPTY_THOUGHT, {"content": "It is"}, "[assistant]<think>\n\n</think>\n\nIt is"),
    ],
)
def test_the_prompt_ends_with_the_answer_that_the_client_began(source, last, end):
    assert render(source, [*HELLO, {"role": "assistant", **last}], continues=True).endswith(end)


def test_without_a_generation_prompt_no_answer_begins():
    assert render(TURNS, open_answer=False) == "[user]Hello"


MANY = "{% for i in range(99999) %}"
END = "{% endfor %}"
LOOP = MANY * 3 + END * 3 + "{{ messages[0].content }}"
HOSTILE = {
    "loops": LOOP,
    "computes": "{{ 10 ** (10 ** 8) }}{{ messages[0].content }}",
    "allocates": '{% set x = "a" * 1200000000 %}{{ messages[0].content }}',
    "allocates in a loop": "{% set n = namespace(x='ab') %}" + MANY + "{% set n.x = n.x + n.x %}" + END,
    "writes": MANY * 2 + "{{ 'long' * 999 }}" + END * 2,
    "nests": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "nests blocks": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "recurses": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}{{ messages[0].content }}",
}


def refusal(source):
    """Why a template of a stranger is not used; empty if it is."""
    try:
        ChatTemplate.of_stranger(source, "", "", None, 0.3)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_a_template_of_a_stranger_takes_neither_this_process_nor_its_memory(source):
    before = resource.getrusage(resource.RUSAGE_SELF)
    assert re.fullmatch("(the chat template .{10,150})?", refusal(source))
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime - before.ru_utime < 60
    assert after.ru_maxrss - before.ru_maxrss < 200 << 10


def test_one_that_takes_too_long_is_refused_in_a_sentence():
    assert refusal(LOOP) == (
        "the chat template cannot be used: for a few words it takes more than 0.3 s of CPU time"
    )


def test_what_a_template_supports_is_found_out_elsewhere_and_is_the_same():
    source = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"
    assert ChatTemplate.of_stranger(source, "", "", None, 60.0).known == ChatTemplate(source, "", "").known


def test_a_prompt_with_the_time_is_the_same_for_an_hour():
    assert re.fullmatch(r"\w{3} \d\d \d{4} \d\d:00:00 GMT", jinja.date_variables()["datetime"])
