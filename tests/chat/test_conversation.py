"""The conversation holds whole turns, and a request is the conversation with one question more."""

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


def test_asking_alone_does_not_change_the_conversation():
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


def test_forgetting_keeps_system_prompt_and_parameters():
    conversation = Conversation(system="Be brief.", sampling=Sampling(seed=7))
    conversation.add("Hi", "Hello.")
    conversation.forget()
    assert conversation.messages == [{"role": "system", "content": "Be brief."}]
    assert conversation.sampling.seed == 7
