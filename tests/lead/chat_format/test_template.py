import re
import resource

import pytest

from lead.chat_format import jinja
from lead.chat_format.jinja import CHATML
from lead.chat_format.request_parts import ChatMessage, TemplateInput
from lead.chat_format.template import ChatTemplate
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


CONTENT, ANSWERED = "{{ messages[0].content }}", "[user]Hello[assistant]"
LINES = "{% if true %}\n  {% for m in messages %}\n{{ m.content }}{% endfor %}\n{% endif %}"
PARTS = "{% for p in messages[0].content if p.type == 'text' %}({{ p.text }}){% endfor %}"
SORTED = "{{ {'b': 1, 'a': 'é'} | tojson(separators=(',', ':'), sort_keys=true, ensure_ascii=true) }}"
GEMMA_PROMPT = "<start_of_turn>user\nHello<end_of_turn>\n<start_of_turn>model\n"
CHATML_PROMPT = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
RENDERED = {
    "it ends where the answer begins": (CHATML, CHATML_PROMPT),
    "a model without a template gets ChatML": (None, CHATML_PROMPT),
    "a name is a template of llama.cpp": ("gemma", GEMMA_PROMPT),
    "special tokens can be used": (f"{{{{ bos_token }}}}{CONTENT}{{{{ eos_token }}}}", "<s>Hello</s>"),
    "blocks leave no empty lines": (LINES, "Hello"),
    "generation tags are ignored": (f"{{% generation %}}{CONTENT}{{% endgeneration %}}", "Hello"),
    "a list of tools may be empty": ("{% for t in tools %}x{% endfor %}" + TURNS, ANSWERED),
    "parts where parts are expected": (PARTS, "(Hello)"),
    "JSON is not escaped for HTML": ("{{ {'a': '<é>'} | tojson }}" + TURNS, '{"a": "<é>"}' + ANSWERED),
    "iterators are lists in JSON": ("{{ messages | map(attribute='content') | tojson }}", '["Hello"]'),
    "JSON as in transformers": (SORTED + TURNS, '{"a":"\\u00e9","b":1}' + ANSWERED),
}


@pytest.mark.parametrize(("source", "prompt"), RENDERED.values(), ids=RENDERED)
def test_a_conversation_is_rendered(source, prompt):
    assert render(source) == prompt


def test_messages_that_the_template_refuses_are_the_clients_error():
    with pytest.raises(RequestError, match="roles must alternate") as refused:
        render("{{ raise_exception('roles must alternate') }}")
    assert refused.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ range(10**9) | list }}",
        pytest.param("{{ messages[0].content + 1 }}", id="a template that fails"),
    ],
)
def test_a_template_that_is_hostile_or_fails_is_the_clients_error(source):
    with pytest.raises(RequestError):
        render(source)


def test_text_that_is_not_a_template_is_a_config_error():
    with pytest.raises(ConfigError, match="not valid Jinja"):
        ChatTemplate("{% if %}", "", "")


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


def test_a_client_can_set_variables_except_the_messages_and_tokens():
    source = "{{ mood }} {{ messages[0].content }} {{ bos_token }}"
    fields = {"mood": "glad", "messages": [], "bos_token": "x"}
    assert render(source, variables=fields) == "glad Hello <s>"


def test_a_second_template_is_used_for_conversations_with_tools():
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    both = {"tool_use": "with {{ tools[0].function.name }}" + TURNS}
    assert render("plain" + TURNS, **both, tools=[tool]) == "with add[user]Hello[assistant]"
    assert render("plain" + TURNS, **both) == "plain[user]Hello[assistant]"


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("{% for k, v in c.function.arguments | items %}{{ k }}={{ v }}{% endfor %}", "<add a=1>"),
        ("{{ c.function.arguments | tojson }}", '<add {"a": 1}>'),
        ("{{ c.function.arguments }}", '<add {"a": 1}>'),
        ("{{ '' + c.function.arguments }}", '<add {"a": 1}>'),
    ],
    ids=["objects to iterate over", "objects for JSON", "text", "text to add to"],
)
def test_arguments_are_what_the_template_expects(written, found):
    assert found in render(CALLS.replace("ARGUMENTS", written), USED)


def test_documents_are_passed_to_the_template():
    assert render("{{ documents[0].text }}" + TURNS, documents=[{"text": "d"}]) == f"d{ANSWERED}"


NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + TURNS


@pytest.mark.parametrize(
    ("source", "role", "prompt"),
    [
        (TURNS, "developer", f"[system]d{ANSWERED}"),
        (TURNS + "{# developer #}", "developer", f"[developer]d{ANSWERED}"),
        (NO_SYSTEM, "system", "[user]d\n\nHello[assistant]"),
    ],
    ids=["the system's", "as they are", "joined to the next message"],
)
def test_instructions_have_a_role_that_the_template_has(source, role, prompt):
    assert render(source, [{"role": role, "content": "d"}, *HELLO]) == prompt


def test_parts_of_a_content_become_lines():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert render(TURNS, [{"role": "user", "content": parts}]) == "[user]a\nb[assistant]"


def test_calls_and_results_become_text_if_the_template_has_none():
    source = "{% for m in messages if m.role != 'tool' %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    assert render(source, USED) == (
        '[user]Hello[assistant]{"tool_calls": [{"name": "add", "arguments": {"a": 1}}]}'
        '[user]{"tool_response": {"tool_call_id": "call00001", "content": "two"}}'
    )


WHOLE = "<think>\nHm\n</think>\n\nIt is"
NO_THOUGHT = "<think>\n\n</think>\n\nIt is"


@pytest.mark.parametrize(
    ("source", "last", "end"),
    [
        (TURNS, {"content": "It is"}, "It is"),
        (TURNS, {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\n\nb"),
        (THINKS, {"content": "It is"}, NO_THOUGHT),
        (THINKS, {"reasoning_content": "Hm", "content": "It is"}, WHOLE),
        (THINKS, {"reasoning_content": "Hm"}, "<think>\nHm"),
        (TAKES_OUT, {"reasoning_content": "Hm"}, "<think>Hm"),
        (TAKES_OUT, {"content": "It is"}, "It is"),
        *((source, {"content": WHOLE}, WHOLE) for source in (THINKS, EMPTY_THOUGHT, TAKES_OUT)),
        (THINKS, {"content": "\n<think>Hm"}, "<think>Hm"),
        (EMPTY_THOUGHT, {"reasoning_content": "Hm"}, "<think>\nHm"),
        (EMPTY_THOUGHT, {"content": "It is"}, NO_THOUGHT),
    ],
)
def test_the_prompt_ends_with_the_answer_that_the_client_began(source, last, end):
    prompt = render(source, [*HELLO, {"role": "assistant", **last}], continues=True)
    assert prompt.endswith(f"[assistant]{end}")


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
    """The reason why a stranger's template is not used; empty if it is used."""
    try:
        ChatTemplate.from_untrusted(source, "", "", None, 0.3)
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
        "the chat template cannot be used. For a short test message it takes more than 0.3 s of CPU time"
    )


def test_what_a_template_supports_is_found_out_elsewhere_and_is_the_same():
    source = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"
    assert ChatTemplate.from_untrusted(source, "", "", None, 60.0).known == ChatTemplate(source, "", "").known


def test_a_prompt_with_the_time_is_the_same_for_an_hour():
    assert re.fullmatch(r"\w{3} \d\d \d{4} \d\d:00:00 GMT", jinja.date_variables()["datetime"])
