from lead.tools.call_format import NAME
from lead.tools.call_probes import derive_call_format
from tests.lead.chat_format.cases import load, template


def writer(write_call, before="", between="", after="<end>", *, several=True):
    """A template in which `write_call` writes one call from its name and arguments."""

    def render(messages, _tools=(), *, opened=False):
        text = ""
        for message in messages:
            calls = message.get("tool_calls", [])
            if len(calls) > 1 and not several:
                return None
            written = between.join(write_call(**each["function"], call_id=each["id"]) for each in calls)
            text += f"<{message['role']}>{message['content']}"
            text += f"{before}{written}{after}" if calls else "<end>"
        return text + "<assistant>" * opened

    return render


def test_a_template_that_writes_no_calls_has_no_format():
    assert derive_call_format(writer(lambda **_: "")) is None


def test_a_template_that_refuses_everything_has_no_format():
    assert derive_call_format(lambda *_, **__: None) is None


def test_the_texts_around_calls_are_found():
    render = writer(
        lambda name, arguments, call_id: (
            f'<call id={call_id}>{name}: {{"keyone": "valueone", "keytwo": "valuetwo"}}</call>'
            if arguments
            else ""
        ),
        before="<calls>",
        between="; ",
        after="</calls><end>",
    )
    calls, as_object = derive_call_format(render)
    assert as_object
    assert (calls.before, calls.between, calls.after) == ("<calls>", "; ", "</calls>")
    assert calls.head.endswith(f">{NAME}: ")
    assert calls.tail == "</call>"


def test_a_template_for_one_call_has_nothing_between_two():
    calls, _ = derive_call_format(
        writer(lambda name, arguments, **_: f"<call>{name} {arguments}", several=False)
    )
    assert calls.between is None


def test_a_template_may_require_the_length_of_ids():
    lengths = {name: template(name).tool_format.id_characters for name in load("templates.toml")}
    assert {name for name, n in lengths.items() if n} == {
        "Mistral-Small-3.2-24B-Instruct-2506",
        "mistralai-Mistral-Nemo-Instruct-2407",
    }
    assert set(lengths.values()) == {0, 9}


def test_a_template_may_expect_arguments_as_text():
    _, as_object = derive_call_format(writer(lambda name, arguments, **_: f"<call>{name} {arguments}</call>"))
    assert not as_object
