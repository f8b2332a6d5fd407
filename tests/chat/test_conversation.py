"""A conversation holds complete turns; a request is the conversation and the next question."""

from chat.conversation import Conversation
from chat.sampling import Sampling


def test_a_request_has_all_turns_and_the_question_last():
    conversation = Conversation()
    conversation.add("Hi", "Hello.")
    assert conversation.request("Who are you?") == {
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello."},
            {"role": "user", "content": "Who are you?"},
        ]
    }


def test_building_a_request_does_not_change_the_conversation():
    conversation = Conversation()
    conversation.request("Hi")
    assert conversation.messages == []


def test_the_system_prompt_comes_first():
    conversation = Conversation(system="Be brief.")
    conversation.add("Hi", "Hello.")
    assert conversation.messages[0] == {"role": "system", "content": "Be brief."}


def test_model_and_parameters_are_sent_when_set():
    request = Conversation(model="big", sampling=Sampling(seed=7)).request("Hi")
    assert (request["model"], request["seed"]) == ("big", 7)


def test_an_emptied_conversation_keeps_model_system_prompt_and_parameters():
    conversation = Conversation(model="big", system="Be brief.", sampling=Sampling(seed=7))
    conversation.add("Hi", "Hello.")
    emptied = conversation.emptied()
    assert emptied.messages == [{"role": "system", "content": "Be brief."}]
    assert (emptied.model, emptied.sampling.seed) == ("big", 7)


def test_a_question_can_replace_the_last():
    conversation = Conversation()
    conversation.add("Hi", "Hello.")
    conversation.add("And?", "Well.")
    assert [message["content"] for message in conversation.request("So?", instead=True)["messages"]] == [
        "Hi",
        "Hello.",
        "So?",
    ]
    conversation.add("So?", "Yes.", instead=True)
    assert conversation.turns == [("Hi", "Hello."), ("So?", "Yes.")]
