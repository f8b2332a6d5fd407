import pytest

from lead.chat_template import CHATML, ChatTemplate
from shared.errors import RequestError

HELLO = [{"role": "user", "content": "Hello"}]


def render(source, messages=HELLO):
    return ChatTemplate(source, "<s>", "</s>").render(messages)


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
