import pytest
from pydantic import BaseModel

from lead.engine.commands import Ask
from lead.engine.events import Answer
from lead.engine.question import EngineQuestion
from lead.engine.side_jobs import SideJobs
from shared.errors import RequestError, UnavailableError


class Sum(BaseModel, frozen=True):
    total: int


class Add(EngineQuestion[Sum], frozen=True):
    terms: tuple[int, ...]


class Multiply(EngineQuestion[Sum], frozen=True):
    terms: tuple[int, ...]


def ask(number, *terms, question=Add):
    fields = question(terms=terms).model_dump(mode="json")
    return Ask(number=number, question=question.__name__, fields=fields)


def add(question):
    return Sum(total=sum(question.terms))


def add_in_steps(question):
    """Take one step for each term."""
    total = 0
    for term in question.terms:
        yield
        total += term
    return Sum(total=total)


def refuse(error):
    def job(_question):
        raise error

    return job


class Jobs(SideJobs):
    def __init__(self, **jobs):
        self.sent = []
        super().__init__(self.sent.append)
        for question in (Add, Multiply):
            self.register(question, jobs.get(question.__name__.lower(), add))

    def answers_after(self, *asked, n_turns=1):
        for each in asked:
            self.begin(each)
        for _ in range(n_turns):
            assert self.run_due(0.0, idle=True) == 0.0
        return self.sent


def test_a_question_is_answered_at_the_next_call():
    assert Jobs().answers_after(ask(7, 1, 2)) == [Answer(number=7, reply={"total": 3})]


def test_a_reply_is_read_as_what_the_question_promises():
    (answer,) = Jobs().answers_after(ask(7, 1, 2))
    assert Add.read_reply(answer.reply) == Sum(total=3)


def test_each_type_of_question_has_a_job_of_its_own():
    jobs = Jobs(multiply=lambda question: Sum(total=question.terms[0] * question.terms[1]))
    answers = jobs.answers_after(ask(1, 3, 4, question=Multiply), ask(2, 3, 4))
    assert [answer.reply["total"] for answer in answers] == [12, 7]


def test_a_longer_job_lets_others_be_answered_before():
    jobs = Jobs(add=add_in_steps, multiply=add)
    answers = jobs.answers_after(ask(1, 3, 4), ask(2, 3, 4, question=Multiply), n_turns=3)
    assert answers == [Answer(number=number, reply={"total": 7}) for number in (2, 1)]


def test_an_idle_engine_waits_only_while_nobody_asks():
    jobs = Jobs(add=add_in_steps)
    assert jobs.seconds_until_due(0.0) is None
    jobs.begin(ask(1, 2))
    assert jobs.seconds_until_due(0.0) > 0
    jobs.answers_after(n_turns=2)
    assert jobs.seconds_until_due(0.0) is None


@pytest.mark.parametrize(("error", "may_recover"), [(RequestError, False), (UnavailableError, True)])
def test_a_refusal_says_why_and_whether_it_is_final(error, may_recover):
    answers = Jobs(add=refuse(error("not now"))).answers_after(ask(3))
    assert answers == [Answer(number=3, reason="not now", may_recover=may_recover)]


def test_any_other_error_ends_the_engine():
    with pytest.raises(ZeroDivisionError):
        Jobs(add=refuse(ZeroDivisionError())).answers_after(ask(3))
