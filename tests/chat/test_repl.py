"""Whole sessions: lines typed and a scripted lead give exactly this screen."""

import io

import httpx
import pytest

from chat.conversation import Conversation
from chat.render import SOURCE_COLOURS, Screen
from chat.repl import Repl
from chat.retry import N_RETRIES
from tests.chat.fakes import (
    FakeLead,
    ScriptedLines,
    Session,
    Stream,
    Terminal,
    answers,
    end_events,
    event,
    is_away,
    refuses,
    streams,
    text_event,
)

CTRL_C = KeyboardInterrupt


def test_an_answer_streams_and_is_summed_up():
    session = Session(answers("Hello", (" there", "back-1"), ("!", "back-1")))
    assert session.type("Hi") == (
        "> Hi\n"
        "Hello there!\n"
        "3 tokens · 10.0 tokens/s · 2 of 4 drafted accepted (50%)\n"
        "> ^D\n"
    )  # fmt: skip


def test_the_greeting_says_where_one_is_and_what_to_type():
    session = Session()
    session.type()
    assert session.screen.getvalue() == (
        "Talking to http://lead:5555. :help lists the commands, Ctrl-D leaves.\n> ^D\n"
    )


def test_accepted_tokens_are_in_colour():
    session = Session(streams(text_event("Hello", (" there", "back-1")), *end_events()), terminal=Terminal)
    session.type("Hi")
    assert f"Hello{SOURCE_COLOURS[0]} there\x1b[0m\n" in session.screen.getvalue()


def test_the_conversation_is_kept():
    session = Session(answers("Hello."), answers("Me."))
    session.type("Hi", "Who is there?")
    assert session.lead.messages() == [
        ("user", "Hi"),
        ("assistant", "Hello."),
        ("user", "Who is there?"),
    ]


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


@pytest.mark.parametrize("line", [":quit", ":q", ":exit"])
def test_quit_leaves(line):
    assert Session().type(line, "never read") == f"> {line}\n"


def test_an_empty_line_is_nothing():
    assert Session().type("", "  ") == "> \n>   \n> ^D\n"


def test_a_space_before_a_colon_makes_it_a_message():
    session = Session(answers(":-)"))
    session.type(" :)")
    assert session.lead.messages() == [("user", ":)")]


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
        "temperature  0.2  0: always the likeliest token\n"
        "> :set seed=7\n"
        "seed  7  the same seed gives the same text\n"
        "> :set seed none\n"
        "seed  server's default  the same seed gives the same text\n"
    )
    assert session.lead.bodies[0]["temperature"] == 0.2
    assert "seed" not in session.lead.bodies[0]


def test_set_alone_lists_the_parameters():
    screen = Session().type(":set top_k 5", ":set")
    assert "temperature        server's default  0: always" in screen
    assert "top_k              5                 keep" in screen


def test_a_bad_value_is_explained_and_changes_nothing():
    session = Session()
    assert session.type(":set temperature -1", ":set top_p", ":set colour red") == (
        "> :set temperature -1\n"
        "temperature should be greater than or equal to 0, not '-1'.\n"
        "> :set top_p\n"
        "top_p  server's default  keep the likeliest tokens up to this much\n"
        "> :set colour red\n"
        "There is no parameter 'colour'. ':set' alone lists the parameters.\n"
        "> ^D\n"
    )
    assert session.conversation.sampling.chosen == {}


def test_an_unknown_command_is_explained():
    assert Session().type(":sats") == (
        "> :sats\n"
        "There is no command :sats. Did you mean :stats? "
        "(To say it to the model, put a space before the colon.)\n"
        "> ^D\n"
    )


def test_help_lists_every_command():
    assert Session().type(":help") == (
        "> :help\n"
        ":new              start a new conversation; system prompt and parameters stay\n"
        ":system TEXT      set the system prompt (none: remove it); alone: show it\n"
        ":set NAME VALUE   set a sampling parameter (none: the server's default); alone: list them\n"
        ":stats            speed and accepted drafts, of this session and of the last answer\n"
        ":backs            the computers that draft for this server\n"
        ":help             this list\n"
        ":quit, :q, :exit  leave; so does Ctrl-D\n"
        "Anything else is said to the model. Alt-Enter starts a new line in it, Up brings\n"
        "back what you typed, Tab completes commands, Ctrl-C stops an answer. Words in\n"
        "colour were drafted and accepted, one colour for each source.\n"
        "> ^D\n"
    )


def test_stats_sum_up_the_session_and_name_the_sources():
    session = Session(answers("a", ("b", "back-1")), answers(("c", "ngram"), ("d", "back-1")))
    assert session.type("Hi", "And?", ":stats").endswith(
        "> :stats\n"
        "session      2 answers · 4 tokens · 10.0 tokens/s · 3 of 6 drafted accepted (50%)\n"
        "last answer  2 tokens · 10.0 tokens/s · 2 of 4 drafted accepted (50%)"
        " · prompt 7 tokens in 0.25 s (3 more from the cache) · seed 42\n"
        "  back-1: 2 accepted\n"
        "  ngram: 1 accepted\n"
        "> ^D\n"
    )


def test_backs_are_listed():
    session = Session(lambda _: httpx.Response(200, json={"backs": [{"name": "attic", "n_drafts": 3}]}))
    assert session.type(":backs").startswith("> :backs\nname   model  link  since  drafts")


def test_a_server_that_does_not_speculate_is_no_failure():
    session = Session(refuses(404, "Not Found"))
    assert session.type(":backs") == "> :backs\nThis server does not speculate.\n> ^D\n"
    assert session.n_failed == 0


def test_an_answer_at_the_token_limit_says_so():
    session = Session(streams(text_event("Once"), *end_events(1, reason="length")))
    assert "Once\n1 token · 10.0 tokens/s · cut at the token limit\n" in session.type("Hi")


def test_an_empty_answer_is_an_empty_line():
    session = Session(streams(*end_events(0)))
    assert session.type("Hi") == "> Hi\n\n0 tokens\n> ^D\n"


def test_control_characters_of_a_model_do_nothing():
    session = Session(answers("\x1b", "[2J", "\x9b31m", ("\r", "back-1")))
    assert session.type("Hi").startswith("> Hi\n␛[2J�31m␍\n")


def test_the_model_gets_its_own_words_back_unchanged():
    session = Session(answers("\x1b[2J"), answers("ok"))
    session.type("Hi", "And?")
    assert session.lead.messages()[1] == ("assistant", "\x1b[2J")


def test_control_characters_of_an_error_do_nothing():
    assert "answered 400: ␛[2J\n" in Session(refuses(400, "\x1b[2J")).type("Hi")


def test_ctrl_c_stops_the_answer_and_keeps_what_came():
    session = Session(streams(text_event("Once", " upon"), KeyboardInterrupt()), answers("a time"))
    assert session.type("Hi", "Go on.") == (
        "> Hi\n"
        "Once upon\n"
        "Stopped after 2 tokens; the answer so far stays in the conversation.\n"
        "> Go on.\n"
        "a time\n"
        "1 token · 10.0 tokens/s\n"
        "> ^D\n"
    )
    assert session.lead.messages() == [("user", "Hi"), ("assistant", "Once upon"), ("user", "Go on.")]


def test_ctrl_c_hangs_up():
    stream = Stream([text_event("Once"), KeyboardInterrupt()])
    headers = {"content-type": "text/event-stream"}
    Session(lambda _: httpx.Response(200, headers=headers, stream=stream)).type("Hi")
    assert stream.closed


def test_ctrl_c_while_a_token_is_shown_hangs_up_too():
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
    assert "Stopped after 1 token;" in session.type("Hi")
    assert stream.closed


def test_ctrl_c_before_the_answer_leaves_the_question_out():
    session = Session(streams(KeyboardInterrupt()))
    assert session.type("Hi") == (
        "> Hi\n"
        "Stopped before the answer began. The question was left out of the conversation."
        " Press Up to send it again.\n"
        "> ^D\n"
    )
    assert session.conversation.messages == []


def test_ctrl_c_at_the_prompt_says_how_to_leave():
    assert Session().type(CTRL_C, ":q") == (
        "> ^C\nCtrl-C stops an answer. To leave, type :quit or press Ctrl-D.\n> :q\n"
    )


def test_a_lead_that_is_away_costs_nothing_but_the_answer():
    session = Session(is_away, answers("Hello."))
    assert session.type("Hi", "Hi") == (
        "> Hi\n"
        "There is no answer at http://lead:5555 (Connection refused)."
        " Start lead there, or name another address with --lead.\n"
        "The question was left out of the conversation. Press Up to send it again.\n"
        "> Hi\n"
        "Hello.\n"
        "1 token · 10.0 tokens/s\n"
        "> ^D\n"
    )
    assert session.lead.messages() == [("user", "Hi")]


def test_a_lead_that_is_loading_is_asked_again_when_it_says():
    session = Session(refuses(503, "loading the model", {"Retry-After": "5"}), answers("Hello."))
    assert session.type("Hi").startswith(
        "> Hi\n"
        "http://lead:5555 answered 503: loading the model; trying again in 5 s, Ctrl-C gives up.\n"
        "Hello.\n"
    )
    assert session.sleeps == [5.0]


def test_a_lead_that_stays_away_loading_is_given_up():
    session = Session(*[refuses(503, "loading the model")] * (N_RETRIES + 1))
    screen = session.type("Hi")
    assert len(session.sleeps) == N_RETRIES
    assert screen.endswith(
        "http://lead:5555 answered 503: loading the model\n"
        "The question was left out of the conversation. Press Up to send it again.\n"
        "> ^D\n"
    )


def test_ctrl_c_ends_the_waiting():
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
        "The question was left out of the conversation. Press Up to send it again.\n"
        "> ^D\n"
    )
    assert session.conversation.messages == []


def piped(lead, *lines):
    """(stdout, stderr, failures) of a session without a person."""
    out, err = io.StringIO(), io.StringIO()
    with lead.client() as client:
        repl = Repl(client, Conversation(), Screen(out, err, {}), interactive=False, sleep=lambda _: None)
        repl.run(ScriptedLines(io.StringIO(), lines))
    return out.getvalue(), err.getvalue(), repl.n_failed


def test_a_pipe_gets_the_answers_and_nothing_else():
    lead = FakeLead(answers("Hello."), answers("Me", ("!", "back-1")))
    assert piped(lead, "Hi", ":set seed 1", "Who is there?")[0] == "Hello.\nMe!\n"


def test_a_pipe_hears_of_errors_elsewhere():
    out, err, n_failed = piped(FakeLead(is_away, answers("Hello.")), "Hi", ":nwe", "Hi")
    assert out == "Hello.\n"
    assert err == (
        "There is no answer at http://lead:5555 (Connection refused)."
        " Start lead there, or name another address with --lead.\n"
        "The question was left out of the conversation.\n"
        "There is no command :nwe. Did you mean :new? "
        "(To say it to the model, put a space before the colon.)\n"
    )
    assert n_failed == 2


def test_ctrl_c_with_a_pipe_ends_the_program():
    with pytest.raises(KeyboardInterrupt):
        piped(FakeLead(streams(text_event("Once"), KeyboardInterrupt())), "Hi")
