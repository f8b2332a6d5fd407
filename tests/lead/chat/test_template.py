import pytest

from lead.chat import jinja
from lead.chat.jinja import CHATML
from lead.chat.message import ChatMessage
from lead.chat.template import ChatTemplate, Conversation
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


def render(source, messages=HELLO, tool_use=None, **fields):
    template = ChatTemplate(source, "<s>", "</s>", tool_use)
    return template.render(Conversation([ChatMessage(**message) for message in messages], **fields))


def test_a_conversation_ends_where_the_answer_begins():
    assert render(CHATML) == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


def test_a_model_without_a_template_gets_chatml():
    assert render(None) == render(CHATML)


def test_a_template_knows_the_special_tokens():
    assert render("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}") == "<s>Hello</s>"


def test_json_is_not_escaped_for_html():
    assert render("{{ {'a': '<é>'} | tojson }}") == '{"a": "<é>"}'


def test_blocks_leave_no_lines():
    assert (
        render("{% if true %}\n  {% for m in messages %}\n{{ m.content }}{% endfor %}\n{% endif %}")
        == "Hello"
    )


def test_what_the_template_refuses_is_the_clients_error():
    with pytest.raises(RequestError, match="roles must alternate") as refused:
        render("{{ raise_exception('roles must alternate') }}")
    assert refused.value.param == "messages"


@pytest.mark.parametrize(
    "attack",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ range(10**9) | list }}",
    ],
)
def test_a_hostile_template_cannot_leave_the_sandbox(attack):
    with pytest.raises(RequestError):
        render(attack)


def test_a_message_that_the_template_cannot_digest_is_the_clients_error():
    with pytest.raises(RequestError):
        render("{{ messages[0].content + 1 }}")


def test_what_is_no_template_cannot_be_chosen():
    with pytest.raises(ConfigError, match="not Jinja"):
        ChatTemplate("{% if %}", "", "")


def test_a_name_is_one_of_llama_cpps_templates():
    assert render("gemma") == "<start_of_turn>user\nHello<end_of_turn>\n<start_of_turn>model\n"


def test_a_text_that_is_no_name_is_a_template():
    assert render("llama3 and more") == "llama3 and more"


def test_a_long_conversation_fits_a_named_template():
    words = "word " * 10_000
    assert words.strip() in render("chatml", [{"role": "user", "content": words}])


def test_a_template_that_never_ends_is_stopped(monkeypatch):
    monkeypatch.setattr(jinja, "MAX_CHARACTERS", 1000)
    endless = "{% for i in range(90000) %}{{ messages[0].content }}{% endfor %}"
    with pytest.raises(RequestError, match="more than 1000 characters"):
        render(endless)


def test_a_template_that_takes_long_is_stopped(monkeypatch):
    monkeypatch.setattr(jinja, "MAX_SECONDS", -1.0)
    with pytest.raises(RequestError, match="takes longer"):
        render(CHATML)


def test_generation_tags_mark_nothing_here():
    assert render("{% generation %}{{ messages[0].content }}{% endgeneration %}") == "Hello"


def test_json_is_written_as_asked():
    source = "{{ {'b': 1, 'a': 'é'} | tojson(separators=(',', ':'), sort_keys=true, ensure_ascii=true) }}"
    assert render(source) == '{"a":"\\u00e9","b":1}'


def test_the_client_gives_variables_but_not_the_messages():
    source = "{{ mood }} {{ messages[0].content }} {{ bos_token }}"
    fields = {"mood": "glad", "messages": [], "bos_token": "x"}
    assert render(source, variables=fields) == "glad Hello <s>"


def test_tools_have_a_template_of_their_own_if_the_model_has_one():
    assert render("plain", tool_use="with {{ tools[0].x }}", tools=[{"x": 1}]) == "with 1"
    assert render("plain", tool_use="with {{ tools[0].x }}") == "plain"


def test_a_template_that_wants_a_list_of_tools_gets_an_empty_one():
    assert render("{% for t in tools %}x{% endfor %}" + TURNS) == "[user]Hello[assistant]"


def test_what_a_filter_gives_is_written_as_a_list():
    assert render("{{ messages | map(attribute='role') | tojson }}") == '["user"]'


def test_arguments_are_objects_for_a_template_that_goes_through_them():
    source = CALLS.replace(
        "ARGUMENTS", "{% for k, v in c.function.arguments | items %}{{ k }}={{ v }}{% endfor %}"
    )
    assert "<add a=1>" in render(source, USED)


def test_documents_reach_the_template():
    assert render("{{ documents[0].text }}", documents=[{"text": "d"}]) == "d"


def test_parts_are_lines():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert render(TURNS, [{"role": "user", "content": parts}]) == "[user]a\nb[assistant]"


def test_a_template_of_parts_gets_parts():
    source = "{% for p in messages[0].content if p.type == 'text' %}({{ p.text }}){% endfor %}"
    assert render(source) == "(Hello)"


def test_a_developer_is_the_system_where_the_template_knows_none():
    messages = [{"role": "developer", "content": "d"}, *HELLO]
    assert render(TURNS, messages) == "[system]d[user]Hello[assistant]"
    assert render(TURNS + "{# developer #}", messages) == "[developer]d[user]Hello[assistant]"


def test_a_template_without_system_messages_has_them_from_the_user():
    source = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + TURNS
    messages = [{"role": "system", "content": "s"}, *HELLO]
    assert render(source, messages) == "[user]s\nHello[assistant]"


def test_arguments_are_objects_for_a_template_that_writes_json():
    assert '<add {"a": 1}>' in render(CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}"), USED)


def test_arguments_are_text_for_a_template_that_writes_text():
    assert '<add {"a": 1}>' in render(CALLS.replace("ARGUMENTS", "{{ c.function.arguments }}"), USED)
    assert '<add {"a": 1}>' in render(CALLS.replace("ARGUMENTS", "{{ '' + c.function.arguments }}"), USED)


def test_a_template_without_tool_results_has_them_in_words():
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
        (TURNS + "{# </think> #}", {"reasoning_content": "Hm"}, "[assistant]<think>\nHm"),
        (TURNS + "{# </think> #}", {"content": "It is"}, "[assistant]It is"),
    ],
)
def test_an_answer_goes_on_where_the_client_left_it(source, last, end):
    assert render(source, [*HELLO, {"role": "assistant", **last}], continues=True).endswith(end)


def test_without_a_generation_prompt_the_conversation_just_ends():
    assert render(TURNS, open_answer=False) == "[user]Hello"
