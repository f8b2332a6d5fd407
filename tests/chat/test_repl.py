"""Whole sessions: lines typed and a scripted lead give exactly this screen."""

import io
import json

import httpx
import pytest

from chat.commands import COMMANDS
from chat.streaming import N_RETRIES
from tests.chat.fakes import (
    Session,
    Stream,
    answers,
    end_events,
    event,
    is_away,
    refuses,
    streams,
    text_event,
)

CTRL_C = KeyboardInterrupt


def test_an_answer_is_streamed_and_summarized():
    session = Session(answers("Hello", (" there", "back-1"), ("!", "back-1")))
    assert session.type("Hi") == (
        "> Hi\n"
        "Hello there!\n"
        "3 tokens · 10.0 tokens/s · 2 of 4 draft tokens accepted (50%) · ■ back-1 2\n"
        "> ^D\n"
    )  # fmt: skip


def test_new_starts_a_new_conversation():
    session = Session(answers("Hello."), answers("Me."))
    assert session.type("Hi", ":new", "Who is there?") == (
        "> Hi\n"
        "Hello.\n"
        "1 token · 10.0 tokens/s\n"
        "> :new\n"
        "A new conversation.\n"
        "> Who is there?\n"
        "Me.\n"
        "1 token · 10.0 tokens/s\n"
        "> ^D\n"
    )
    assert session.lead.messages() == [("user", "Who is there?")]


@pytest.mark.parametrize(
    ("lines", "screen"),
    [
        ([":quit", "never read"], "> :quit\n"),
        (["", "  "], "> \n>   \n> ^D\n"),
        ([CTRL_C, ":q"], "> ^C\nCtrl-C stops an answer. To leave, type :quit or press Ctrl-D.\n> :q\n"),
        *(
            ([each], f"> {each}\nNothing has been asked yet.\n> ^D\n")
            for each in (":retry", ":edit", ":compare")
        ),
        ([":save talk"], "> :save talk\nThere is nothing to save yet.\n> ^D\n"),
    ],
)
def test_before_the_first_question_the_screen_shows(lines, screen):
    assert Session().type(*lines) == screen


def test_the_system_prompt_is_set_shown_and_removed():
    session = Session(answers("Arr."))
    assert session.type(":system", ":system Be a pirate.", "Hi", ":system", ":system none") == (
        "> :system\n"
        "There is no system prompt.\n"
        "> :system Be a pirate.\n"
        "System prompt: Be a pirate.\n"
        "> Hi\n"
        "Arr.\n"
        "1 token · 10.0 tokens/s\n"
        "> :system\n"
        "System prompt: Be a pirate.\n"
        "> :system none\n"
        "There is no system prompt.\n"
        "> ^D\n"
    )
    assert session.lead.messages() == [("system", "Be a pirate."), ("user", "Hi")]


def test_parameters_are_set_and_sent():
    session = Session(answers("Hi."))
    assert session.type(":set temperature 0.2", ":set seed=7", ":set seed none", "Hi").startswith(
        "> :set temperature 0.2\n"
        "temperature  0.2  temperature; 0: always the most likely token\n"
        "> :set seed=7\n"
        "seed  7  RNG seed; the same seed gives the same text\n"
        "> :set seed none\n"
        "seed  server's default  RNG seed; the same seed gives the same text\n"
    )
    assert session.lead.bodies[0]["temperature"] == 0.2
    assert "seed" not in session.lead.bodies[0]


def test_set_alone_lists_the_parameters():
    screen = Session().type(":set top_k 5", ":set")
    assert "temperature        server's default  temperature" in screen
    assert "top_k              5                 top-k sampling" in screen


def test_help_lists_every_command():
    screen = Session().type(":help")
    for entry in COMMANDS:
        assert f"\n{entry.usage} " in f"\n{screen.partition('> :help')[2]}"


def test_stats_sum_up_the_session_and_name_the_sources():
    session = Session(answers("a", ("b", "back-1")), answers(("c", "ngram"), ("d", "back-1")))
    assert session.type("Hi", "And?", ":stats").endswith(
        "> :stats\n"
        "session      2 answers · 4 tokens · 10.0 tokens/s · 3 of 6 draft tokens accepted (50%)\n"
        "last answer  2 tokens · 10.0 tokens/s · 2 of 4 draft tokens accepted (50%)"
        " · prompt 7 tokens in 0.25 s (3 more from the cache) · seed 42\n"
        "  back-1: 2 accepted\n"
        "  ngram: 1 accepted\n"
        "> ^D\n"
    )


def test_backs_are_listed():
    session = Session(lambda _: httpx.Response(200, json={"backs": [{"name": "attic", "n_drafts": 3}]}))
    assert session.type(":backs").startswith("> :backs\nname   model  link  since  drafts")


def test_a_server_that_does_not_speculate_is_not_a_failure():
    session = Session(refuses(404, "Not Found"))
    assert session.type(":backs") == "> :backs\nThis server does not speculate.\n> ^D\n"
    assert session.n_failed == 0


def test_an_answer_at_the_token_limit_says_so():
    session = Session(streams(text_event("Once"), *end_events(1, reason="length")))
    assert "Once\n1 token · 10.0 tokens/s · cut at the token limit\n" in session.type("Hi")


def test_an_empty_answer_is_shown_as_an_empty_line():
    session = Session(streams(*end_events(0)))
    assert session.type("Hi") == "> Hi\n\n0 tokens\n> ^D\n"


def test_answers_are_sent_back_to_the_model_unchanged():
    session = Session(answers("\x1b[2J"), answers("ok"))
    session.type("Hi", "And?")
    assert session.lead.messages()[1] == ("assistant", "\x1b[2J")


def test_ctrl_c_stops_the_answer_and_keeps_its_beginning():
    session = Session(streams(text_event("Once", " upon"), KeyboardInterrupt()), answers("a time"))
    assert session.type("Hi", "Go on.") == (
        "> Hi\nOnce upon\n2 tokens · stopped early\n> Go on.\na time\n1 token · 10.0 tokens/s\n> ^D\n"
    )
    assert session.lead.messages() == [("user", "Hi"), ("assistant", "Once upon"), ("user", "Go on.")]


def test_ctrl_c_while_a_token_is_shown_closes_the_connection():
    class Impatient(io.StringIO):
        def write(self, text):
            if "Once" in text:
                raise KeyboardInterrupt
            return super().write(text)

    stream = Stream([text_event("Once"), text_event(" upon")])
    headers = {"content-type": "text/event-stream"}
    session = Session(
        lambda _: httpx.Response(200, headers=headers, stream=stream), terminal=Impatient
    )  # fmt: skip
    assert "1 token · stopped early" in session.type("Hi")
    assert stream.closed


def test_ctrl_c_before_the_answer_leaves_the_question_out():
    session = Session(streams(KeyboardInterrupt()))
    assert session.type("Hi") == (
        "> Hi\n"
        "Stopped before the answer began. The question was left out of the conversation."
        " :retry asks it again.\n"
        "> ^D\n"
    )
    assert session.conversation.turns == []


def test_an_unreachable_lead_is_tried_again():
    session = Session(is_away, is_away, answers("Hello."))
    assert session.type("Hi") == (
        "> Hi\nThere is no answer at http://lead:5555 (Connection refused). Start lead there, or "
        "set another address with --lead. Trying again in 1 s. Press Ctrl-C to give up.\nNot yet. "
        "Trying again in 2 s. Press Ctrl-C to give up.\nHello.\n1 token · 10.0 tokens/s\n> ^D\n"
    )
    assert session.sleeps == [1.0, 2.0]
    assert session.lead.messages() == [("user", "Hi")]


def test_a_lead_that_is_loading_is_asked_again_after_retry_after():
    session = Session(refuses(503, "loading the model", {"Retry-After": "5"}), answers("Hello."))
    assert session.type("Hi").startswith(
        "> Hi\nhttp://lead:5555 answered 503: loading the model. Trying again in 5 s. Press "
        "Ctrl-C to give up.\nHello.\n"
    )
    assert session.sleeps == [5.0]


def test_a_lead_that_is_still_loading_after_all_retries_is_given_up():
    session = Session(*[refuses(503, "loading the model")] * (N_RETRIES + 1))
    screen = session.type("Hi")
    assert len(session.sleeps) == N_RETRIES
    assert screen.endswith(
        "http://lead:5555 answered 503: loading the model\n"
        "The question was left out of the conversation. :retry asks it again.\n"
        "> ^D\n"
    )


def test_ctrl_c_ends_the_retries():
    def interrupted(_):
        raise KeyboardInterrupt

    session = Session(refuses(503, "loading the model"))
    assert "\nStopped before the answer began." in session.type("Hi", sleep=interrupted)
    assert len(session.lead.requests) == 1


def test_an_error_in_the_middle_leaves_the_question_out():
    session = Session(streams(text_event("Once"), event({"error": {"message": "the engine died"}})))
    assert session.type("Hi") == (
        "> Hi\n"
        "Once\n"
        "http://lead:5555 broke off its answer: the engine died\n"
        "The question was left out of the conversation. :retry asks it again.\n"
        "> ^D\n"
    )
    assert session.conversation.turns == []


def test_the_greeting_names_the_model():
    session = Session(places={"/v1/models": {"data": [{"id": "spec-demo"}]}})
    session.type()
    assert session.screen.getvalue().startswith("Talking to spec-demo at http://lead:5555. ")


def test_an_unreachable_server_is_reported_at_the_start():
    session = Session(places={"/v1/models": is_away})
    session.type()
    assert session.screen.getvalue() == (
        "There is no answer at http://lead:5555 (Connection refused). Start lead there, or set "
        "another address with --lead.\nTalking to http://lead:5555. :help lists the commands, "
        "Ctrl-D leaves.\n> ^D\n"
    )


def test_retry_replaces_the_last_answer():
    session = Session(answers("One."), answers("Two."), answers("Three."))
    assert session.type("Hi", "And?", ":retry").endswith("> :retry\nThree.\n1 token · 10.0 tokens/s\n> ^D\n")
    assert session.lead.messages() == [("user", "Hi"), ("assistant", "One."), ("user", "And?")]
    assert session.conversation.turns == [("Hi", "One."), ("And?", "Three.")]


@pytest.mark.parametrize(
    ("replies", "lines", "turns"),
    [
        (["One.", None, "Two."], ["Hi", "And?", ":retry"], [("Hi", "One."), ("And?", "Two.")]),
        (["One.", None], ["Hi", ":retry"], [("Hi", "One.")]),
        (["One.", "Two."], ["Hi", ":edit Hello"], [("Hello", "Two.")]),
        *(
            (["One.", "Two."], ["Hi", ":edit", instead, "And?"], [("Hi", "One."), ("And?", "Two.")])
            for instead in ("", CTRL_C, ":stats")
        ),
    ],
    ids=[
        *("a failed question is asked again", "a failed retry keeps the previous answer"),
        *("edit with a question asks it instead", *["a cancelled edit changes nothing"] * 3),
    ],
)
def test_the_conversation_has_these_turns(replies, lines, turns):
    session = Session(*(answers(text) if text else refuses(500, "no luck") for text in replies))
    session.type(*lines)
    assert session.conversation.turns == turns


@pytest.mark.parametrize(("seed", "warns"), [("42", True), ("7", False)])
def test_retry_warns_of_the_same_answer_where_the_seed_of_the_last_one_is_fixed(seed, warns):
    warning = "The same seed gives the same answer. Use ':seed none' for a new seed each time.\n"
    session = Session(answers("One."), answers("One."))
    assert (warning in session.type(f":seed {seed}", "Hi", ":retry")) == warns


def test_edit_puts_the_last_question_into_the_prompt():
    session = Session(answers("One."), answers("Two."), answers("Three."))
    session.type("Hi", ":edit", "Hi there", "And?")
    assert session.drafts == ["", "", "Hi", "", ""]
    assert session.conversation.turns == [("Hi there", "Two."), ("And?", "Three.")]


def test_compare_shows_both_speeds_and_that_the_texts_are_identical():
    session = Session(
        answers("One."),
        answers("Hello", (" there", "back-1")),
        streams(text_event("Hello", " there"), *end_events(2, rate=4.0)),
    )
    assert session.type("Hi", ":compare").partition("> :compare\n")[2] == (
        "Hello there\nAsking again without speculation ...\n                  tokens  tokens/s  "
        "accepted\nwith speculation       2      10.0       50%\nwithout                2       "
        "4.0         -\n2.50 times as fast with speculation. The texts are identical.\n> ^D\n"
    )
    _, with_drafts, without = session.lead.bodies
    assert without == {**with_drafts, "speculative.n_max": 0}
    assert with_drafts["seed"] == 99
    assert session.conversation.turns == [("Hi", "One.")]


def test_compare_uses_a_seed_that_is_set():
    session = Session(answers("One."), answers("One."))
    session.type(":seed 0", ":compare Hi")
    assert [body["seed"] for body in session.lead.bodies] == [0, 0]


def test_compare_can_be_stopped():
    session = Session(answers("One."), streams(text_event("O"), KeyboardInterrupt()))
    assert session.type(":compare Hi").endswith("Stopped: there is nothing to compare.\n> ^D\n")


def test_a_conversation_is_saved_and_loaded(tmp_path):
    first = Session(answers("Hello."), answers("Me."), folder=tmp_path)
    assert first.type(":system Be brief.", ":seed 7", "Hi", "Who is there?", ":save talk").endswith(
        f"> :save talk\nSaved to {tmp_path}/talk.json. ':load talk' loads it.\n> ^D\n"
    )
    second = Session(answers("Again."), folder=tmp_path)
    assert second.type(":load", ":load talk", "Go on.") == (
        "> :load\n"
        "talk\n"
        "> :load talk\n"
        "2 questions so far. The last one:\n"
        "> Who is there?\n"
        "Me.\n"
        "> Go on.\n"
        "Again.\n"
        "1 token · 10.0 tokens/s\n"
        "> ^D\n"
    )
    assert second.lead.bodies[0]["seed"] == 7
    assert second.lead.messages() == [
        ("system", "Be brief."),
        ("user", "Hi"),
        ("assistant", "Hello."),
        ("user", "Who is there?"),
        ("assistant", "Me."),
        ("user", "Go on."),
    ]


def test_a_conversation_is_named_after_its_first_question_and_saved_to_the_same_file(tmp_path):
    session = Session(answers("Hello."), answers("Me."), folder=tmp_path)
    session.type("Hi, who's there?", ":save", "And?", ":save")
    assert [path.name for path in tmp_path.iterdir()] == ["hi-who-s-there.json"]
    assert len(json.loads((tmp_path / "hi-who-s-there.json").read_text())["messages"]) == 4


def test_a_saved_conversation_is_not_overwritten_by_another(tmp_path):
    session = Session(answers("Hello."), answers("Me."), folder=tmp_path)
    screen = session.type("Hi", ":save talk", ":new", "And?", ":save talk", ":load nothing")
    assert f"{tmp_path}/talk.json already exists. Choose another name.\n" in screen
    assert "There is no conversation 'nothing'. ':load' alone lists the saved conversations.\n" in screen


def test_the_model_is_chosen_among_those_of_the_server():
    session = Session(answers("Hi."), places={"/v1/models": {"data": [{"id": "big"}, {"id": "small"}]}})
    assert session.type(":model small", ":model", "Hi", ":model none").startswith(
        "> :model small\nModel: small\n> :model\n  big\n* small\n> Hi\n"
    )
    assert session.lead.bodies[0]["model"] == "small"
    assert session.conversation.model is None


def test_a_model_that_the_server_does_not_list_is_reported():
    session = Session(places={"/v1/models": {"data": [{"id": "small"}]}})
    screen = session.type(":model samll", ":model small")
    assert "Model: samll\nThe server does not list this model" in screen
    assert screen.endswith("> :model small\nModel: small\n> ^D\n")


def test_seed_alone_shows_the_last_ones():
    assert "The last answer's seed was 42.\n> ^D\n" in Session(answers("Hi.")).type("Hi", ":seed")


def test_reasoning_is_not_part_of_the_answer():
    thought = event({"choices": [{"delta": {"reasoning_content": "Hm."}}]})
    session = Session(streams(thought, text_event("Hi."), *end_events(2)))
    assert session.type("Hi").startswith("> Hi\nHi.\n")
    assert session.conversation.turns == [("Hi", "Hi.")]
