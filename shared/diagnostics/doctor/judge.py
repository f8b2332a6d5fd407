"""What a lead's report means for the speed. Pure: reports in, findings out."""

import re
from collections.abc import Iterator, Sequence

from shared.diagnostics.doctor.diagnosis import Finding, count, good, hint, problem
from shared.diagnostics.doctor.lead_report import BackReport, LeadReport, PlannerReport
from shared.protocol import PROTOCOL_VERSION

_START_IT = "start it with the options that you gave me, without `doctor`"
LEAST_STEPS = 50
"""With fewer, acceptance and times say little."""
_LEAST_SCORED = 50
_LEAST_BOUND = 1.15
"""Below this best case, what is left after wrong drafts and waiting is noise."""
_FEW_RIGHT = 0.4
_IDLE_SHARE = 0.8
_LATE_SHARE = 0.5
"""Of drafts that came too late, and of steps without any: a back that sends its tail after each token is
often overtaken, and that costs nothing as long as the lead has something to verify.
"""
_CROWDED = 2.0
"""How many times as long a token may take beside the lead's computing: caches and clocks explain less."""
_DEAR, _TOO_DEAR = 0.3, 0.8
"""Of a plain step. docs/structure.md's simulation: 1.7 times as fast at 0.3, 1.2 times at 0.6."""


def judge_version(report: LeadReport, version: str) -> Iterator[Finding]:
    """Lead against the doctor's own installation."""
    lead = report.lead
    if lead.protocol not in {None, PROTOCOL_VERSION}:
        yield problem(
            f"the lead speaks protocol {lead.protocol}, this installation {PROTOCOL_VERSION}: install "
            "the same version of llama-duo on both"
        )
    elif lead.version not in {None, version}:
        yield hint(f"the lead is llama-duo {lead.version}, this is {version}: the protocol is the same")
    else:
        yield good(f"llama-duo {version} with protocol {PROTOCOL_VERSION}, as the lead")


def judge_lead(report: LeadReport, own: str | None = None) -> Iterator[Finding]:
    """All that the lead knows: model, policy, T(n), what was drafted, each back.

    `own` is the name of the back that asks.
    """
    if report.lead.speculates is False:
        yield problem(
            "the lead's model is recurrent or hybrid, and tokens cannot be taken back from its memory: it is "
            "served without speculation; only another model changes that"
        )
        return
    planner = report.planner
    if planner is None:
        yield hint("the engine does not answer: it is loading, busy or being started again; ask again later")
    else:
        yield from _judge_policy(planner)
        yield from _judge_steps(planner)
        yield from _judge_work(planner)
    yield from _judge_presence(report.backs, own)
    for back in report.backs:
        yield from judge_back(back, planner or PlannerReport(), own)


def judge_back(back: BackReport, planner: PlannerReport, own: str | None = None) -> Iterator[Finding]:
    """A back, by what came of its drafts; `own` as in `judge_lead`."""
    if back.n_invalid_drafts:
        yield problem(
            f"{back.name} has sent {back.n_invalid_drafts} drafts that cannot be: install the same "
            "version of llama-duo on both machines"
        )
    if not back.n_drafts:
        if planner.n_steps >= LEAST_STEPS:
            yield problem(
                f"{back.name} has sent no draft since it connected: if there were answers meanwhile that it "
                "may see (they may be private), read its log and run `back doctor` there"
            )
        else:
            yield good(f"{back.name} ({back.model}) is connected and waits for text")
        return
    if planner.n_steps < LEAST_STEPS:
        yield good(f"{back.name} ({back.model}) has drafted; {_too_few(planner)}")
        return
    found = [*_judge_quality(back, planner), *_judge_lateness(back, planner, own)]
    yield from found or [good(f"{back.name} ({back.model}) drafts well{_share_right(back, planner)}")]


def judge_draft_speed(draft_ms: float, planner: PlannerReport | None) -> Iterator[Finding]:
    """A back's time for a token against the lead's for a step."""
    step_ms = planner.plain_step_ms if planner else None
    if step_ms is None:
        yield hint(f"a drafted token takes {draft_ms:.1f} ms; the lead's step is not known yet")
        return
    share = draft_ms / step_ms
    words = f"a drafted token takes {draft_ms:.1f} ms, a step of the lead {step_ms:.1f} ms"
    if planner and planner.n_steps < LEAST_STEPS and share > _DEAR:
        yield hint(f"{words}; {_too_few(planner)}")
    elif share > _TOO_DEAR:
        yield problem(
            f"{words}: drafting is no faster than answering; take a smaller draft model, more "
            "--threads or a GPU"
        )
    elif share > _DEAR:
        yield hint(f"{words}: a smaller draft model, more --threads or a GPU would help")
    else:
        yield good(f"{words} ({share:.2f} of it)")


def judge_crowding(report: LeadReport, own: str, draft_ms: float, *, beside: bool) -> Iterator[Finding]:
    """A back's time for a token alone, `draft_ms`, against the one that the lead sees while it computes.

    `own` is the back's name; `beside`: it is on the lead's machine.
    """
    planner, back = report.planner, next((each for each in report.backs if _is_named(each, own)), None)
    if not planner or not back or min(planner.n_steps, back.n_drafts) < LEAST_STEPS:
        return
    token_ms = _token_ms(back, planner)
    if token_ms and token_ms > _CROWDED * draft_ms:
        words = f"{draft_ms:.1f} ms alone and {token_ms:.1f} ms while the lead computes"
        yield hint(
            f"a drafted token takes {words}: "
            + (
                "they share cores or memory; set cores apart with --cpus for each"
                if beside
                else "other programs share its cores or memory, or it drafts for several answers at once"
            )
        )


def judge_round_trip(round_trip_ms: float, planner: PlannerReport | None) -> Iterator[Finding]:
    """A round trip on the back's connection against a step."""
    step_ms = planner.plain_step_ms if planner else None
    words = f"a message and its answer take {round_trip_ms:.1f} ms"
    if step_ms is not None and round_trip_ms > step_ms:
        yield hint(
            f"{words}, longer than a step of {step_ms:.1f} ms: after each wrong guess the lead goes on alone "
            "for that long; a cable instead of radio, a nearer machine or more --n-branches help"
        )
    else:
        yield good(words)


def judge_cores(report: LeadReport, cores: frozenset[int], n_threads: int) -> Iterator[Finding]:
    """A back on the lead's own machine: `cores` are those it may run on."""
    lead = report.lead
    shared = cores & lead.cores
    if not lead.cores:
        yield hint("the lead is on this machine and does not say which cores it uses: give both --cpus")
    elif shared and lead.n_threads + n_threads > len(cores | lead.cores):
        yield problem(
            f"lead ({count(lead.n_threads, 'thread')}) and back ({count(n_threads, 'thread')}) share "
            f"{count(len(shared), 'core')} of this machine, and two programs that spin on the same cores "
            "crawl: give each --cpus of its own"
        )
    else:
        yield good("lead and back are on one machine and have cores enough")


def _judge_presence(backs: Sequence[BackReport], own: str | None) -> Iterator[Finding]:
    if own is None:
        if not backs:
            yield problem("no back is connected: start one with `back --model SMALL.gguf --lead ADDRESS`")
    elif not backs:
        yield problem(f"this back ({own}) is not running, and no other is: {_START_IT}")
    elif not any(_is_named(back, own) for back in backs):
        names = ", ".join(back.name for back in backs)
        yield hint(f"this back ({own}) is not running, only {names}: {_START_IT}")


def _is_named(back: BackReport, own: str) -> bool:
    """A lead numbers those that come with one name: desk, desk-2."""
    return re.fullmatch(rf"{re.escape(own)}(-\d+)?", back.name) is not None


def _judge_policy(planner: PlannerReport) -> Iterator[Finding]:
    if planner.policy == "off":
        yield problem(
            "speculation is switched off: switch it on on the lead's page or with PUT /v1/speculation, and "
            "start the lead without --policy off"
        )
    elif planner.policy != "adaptive":
        yield hint(f"--policy {planner.policy} is there to compare with: adaptive measures what is fastest")


def _judge_steps(planner: PlannerReport) -> Iterator[Finding]:
    """The best case: all drafts right and there at once, n tokens in T(n) instead of n steps of T(1)."""
    plain = planner.plain_step_ms
    wider = {n: n * plain / seconds for n, seconds in planner.step_ms.items() if n > 1} if plain else {}
    if not plain or not wider:
        yield hint("how long a step takes is not known yet: ask something")
        return
    best = max(wider, key=lambda n: wider[n])
    words = f"a step takes {plain:.1f} ms, one of {best} tokens {planner.step_ms[best]:.1f} ms"
    if wider[best] < _LEAST_BOUND:
        yield problem(
            f"{words}: even drafts that are all right would gain nothing; the lead's device computes as "
            "slowly as it reads (too few cores, or a mixture of experts): a smaller model or a GPU helps"
        )
    else:
        yield good(f"{words}: drafts that are all right would be {wider[best]:.1f} times as fast")


def _judge_work(planner: PlannerReport) -> Iterator[Finding]:
    n_choices = sum(planner.depths.values())
    if planner.n_steps < LEAST_STEPS or not n_choices:
        yield hint(f"the lead has made {planner.n_steps} steps: ask for something long, then ask me again")
        return
    per_step = planner.n_committed / n_choices
    n_drafted = planner.n_draft_tokens
    words = f"{per_step:.2f} tokens per step and answer, 1 without drafts"
    if n_drafted:
        words += f"; {planner.n_accepted_tokens / n_drafted:.0%} of the tokens verified were right"
    if planner.idle_share > _IDLE_SHARE:
        yield hint(
            f"{words}; in {planner.idle_share:.0%} of the steps there was no draft that was worth verifying"
        )
    else:
        yield good(words)


def _judge_quality(back: BackReport, planner: PlannerReport) -> Iterator[Finding]:
    source = planner.sources.get(back.name)
    if source and source.n_scored >= _LEAST_SCORED and source.n_right < _FEW_RIGHT * source.n_scored:
        yield problem(
            f"only {source.n_right / source.n_scored:.0%} of {back.name}'s tokens are right where those "
            f"before are: its model ({back.model}) guesses another text than the lead's; take one of the "
            "same family and kind of training, or a bigger one"
        )


def _judge_lateness(back: BackReport, planner: PlannerReport, own: str | None) -> Iterator[Finding]:
    token_ms, step_ms = _token_ms(back, planner), planner.plain_step_ms
    is_own = own is not None and _is_named(back, own)
    if back.n_drafts < _LEAST_SCORED:
        return
    if token_ms and step_ms and token_ms > _TOO_DEAR * step_ms:
        yield problem(
            f"{back.name} needs {token_ms:.1f} ms for a token, a step of the lead takes {step_ms:.1f} "
            "ms: take a smaller draft model, more --threads or a GPU there"
            + ("" if is_own else "; `back doctor` there says more")
        )
    elif back.n_stale_drafts > _LATE_SHARE * back.n_drafts and planner.idle_share > _LATE_SHARE:
        yield hint(
            f"{back.n_stale_drafts / back.n_drafts:.0%} of {back.name}'s drafts come too late or after a "
            f"wrong guess: {'the times above tell' if is_own else '`back doctor` there tells'} network from "
            "computing"
        )


def _share_right(back: BackReport, planner: PlannerReport) -> str:
    source = planner.sources.get(back.name)
    if not source or source.n_scored < _LEAST_SCORED:
        return ""
    # Not the share of the tokens verified: of those, all that follow a wrong one are lost.
    return f": each token is right with {source.n_right / source.n_scored:.0%} if those before it are"


def _token_ms(back: BackReport, planner: PlannerReport) -> float | None:
    source = planner.sources.get(back.name)
    return source.token_ms if source else None


def _too_few(planner: PlannerReport) -> str:
    return f"too few steps to judge ({planner.n_steps} of {LEAST_STEPS})"
