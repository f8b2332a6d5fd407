"""A conversation holds complete turns; a request is the conversation and the next question."""

import json

import pytest

from chat.conversation import ChatConversation, SavedConversations, read_conversation, write_conversation
from chat.errors import CommandError
from chat.sampling import Sampling


def test_an_emptied_conversation_keeps_model_system_prompt_and_parameters():
    conversation = ChatConversation(model="big", system="Be brief.", sampling=Sampling(seed=7))
    conversation.add("Hi", "Hello.")
    emptied = conversation.emptied()
    assert (emptied.turns, emptied.system) == ([], "Be brief.")
    assert (emptied.model, emptied.sampling.seed) == ("big", 7)


@pytest.fixture
def conversation():
    conversation = ChatConversation(
        model="big", system="Be brief.", sampling=Sampling(seed=7, temperature=0.5)
    )
    conversation.add("Hi", "Hello.\n\x1b[2J 日本")
    return conversation


def test_a_saved_conversation_is_read_back(conversation, tmp_path):
    write_conversation(tmp_path / "talk.json", conversation)
    found = read_conversation(tmp_path / "talk.json")
    assert (found.model, found.system, found.sampling) == ("big", "Be brief.", conversation.sampling)
    assert found.turns == conversation.turns


def test_a_file_is_the_body_of_a_request(conversation, tmp_path):
    write_conversation(tmp_path / "talk.json", conversation)
    assert json.loads((tmp_path / "talk.json").read_text()) == {
        "model": "big",
        "messages": conversation.request("More?")["messages"][:-1],
        "temperature": 0.5,
        "seed": 7,
    }


def test_files_are_readable_only_by_their_owner(conversation, tmp_path):
    write_conversation(tmp_path / "new" / "talk.json", conversation)
    assert (tmp_path / "new" / "talk.json").stat().st_mode & 0o077 == 0
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0


def test_a_lone_surrogate_is_replaced(conversation, tmp_path):
    conversation.add("\ud800", "ok")
    write_conversation(tmp_path / "talk.json", conversation)
    assert read_conversation(tmp_path / "talk.json").turns[1] == ("?", "ok")


def test_a_path_that_cannot_be_written_is_reported(conversation, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match=r"talk\.json cannot be written"):
        write_conversation(tmp_path / "file" / "talk.json", conversation)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("no json", "is not a conversation: Invalid JSON"),
        ("[]", "is not a conversation: Input should be an object"),
        ('{"messages": 1}', "messages: Input should be a valid array"),
        ('{"messages": [{"role": "tool", "content": ""}]}', r"messages\.0\.role"),
        ('{"messages": [{"role": "user", "content": "Hi"}]}', "must take turns"),
        (
            '{"messages": [{"role": "assistant", "content": "Hi"}, {"role": "user", "content": ""}]}',
            "take turns",
        ),
        ('{"messages": [], "temperature": -1}', "temperature"),
    ],
)
def test_a_file_that_is_not_a_conversation_is_refused(content, reason, tmp_path):
    path = tmp_path / "talk.json"
    path.write_text(content)
    with pytest.raises(CommandError, match=reason):
        read_conversation(path)


def test_a_name_is_in_the_folder_unless_it_has_a_slash(tmp_path):
    store = SavedConversations(tmp_path)
    assert store.path("talk") == store.path("talk.json") == tmp_path / "talk.json"
    assert str(store.path("./talk.json")) == "talk.json"
    assert store.path("v1.2") == tmp_path / "v1.2.json"


def test_an_unknown_name_is_explained(conversation, tmp_path):
    store = SavedConversations(tmp_path)
    with pytest.raises(CommandError, match=r"no conversation 'tlak'\. ':load' alone lists"):
        store.find("tlak")
    write_conversation(store.path("talk"), conversation)
    with pytest.raises(CommandError, match=r"Did you mean talk\?"):
        store.find("tlak")


@pytest.mark.parametrize("name", ["talk", "v1.2", "/elsewhere/talk.json", "./talk.txt"])
def test_the_name_of_a_path_finds_it_again(name, tmp_path):
    store = SavedConversations(tmp_path)
    assert store.path(store.name_of(store.path(name))) == store.path(name).absolute()


def test_names_are_listed(conversation, tmp_path):
    for name in ("b", "a"):
        write_conversation(tmp_path / f"{name}.json", conversation)
    assert SavedConversations(tmp_path).names() == ["a", "b"]
    assert SavedConversations(tmp_path / "nowhere").names() == []


def test_a_new_name_differs_from_existing_ones(conversation, tmp_path):
    store = SavedConversations(tmp_path)
    write_conversation(store.new_path(conversation), conversation)
    assert store.new_path(conversation) == tmp_path / "hi-2.json"


@pytest.mark.parametrize("question", ["../../etc/passwd", "?!", "a" * 500])
def test_a_name_stays_in_the_folder(question, tmp_path):
    conversation = ChatConversation()
    conversation.add(question, "")
    path = SavedConversations(tmp_path).new_path(conversation)
    assert path.parent == tmp_path
    assert len(path.name) < 80


def test_images_are_shown_with_the_first_question_and_not_saved(tmp_path):
    picture = tmp_path / "a.png"
    picture.write_bytes(b"a picture")
    conversation = ChatConversation(images=[picture])
    shown = {"type": "image_url", "image_url": {"url": "data:;base64,YSBwaWN0dXJl"}}
    asked = [shown, {"type": "text", "text": "What?"}]
    assert conversation.request("What?")["messages"] == [{"role": "user", "content": asked}]
    conversation.add("What?", "A cat.")
    first, _, last = conversation.request("Sure?")["messages"]
    assert (first["content"], last["content"]) == (asked, "Sure?")
    assert conversation.record()["messages"][0]["content"] == "What?"


def test_an_image_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(CommandError, match="cannot read"):
        ChatConversation(images=[tmp_path / "none.png"])
