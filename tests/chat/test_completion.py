"""Tab completes commands and their arguments, never messages to the model."""

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from chat.completion import CommandCompleter

NAMES = {"load": lambda: ["talk", "walk"], "model": lambda: ["big", "b\x1b[2J"]}


def offered(typed, *, asked=True):
    event = CompleteEvent(completion_requested=asked)
    return {found.text for found in CommandCompleter(NAMES).get_completions(Document(typed), event)}


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (":st", {":stats"}),
        (":se", {":set", ":seed"}),
        (":set te", {"temperature"}),
        (":load t", {"talk"}),
        (":load ", {"talk", "walk"}),
        (":new ", set()),
        ("so :st", set()),
        (":st\n:st", set()),
    ],
)
def test_commands_and_their_arguments_are_completed(typed, found):
    assert offered(typed) == found


def test_the_server_is_asked_for_its_models_only_when_tab_is_pressed():
    assert offered(":model b", asked=False) == set()


def test_a_name_with_control_characters_is_not_completed():
    assert offered(":model b") == {"big"}
