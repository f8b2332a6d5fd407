"""Checks of a lead's report for what limits its speed. Pure: reports in, findings out."""

import re
from collections.abc import Iterator

from shared.diagnostics.findings import Finding, count, good, hint, problem
from shared.diagnostics.lead_probe import BackReport, LeadReport, PlannerReport
from shared.diagnostics.prospects import (
    SLOW_BACK,
    SLOWER_BACK,
    TYPICAL_ACCEPTANCE,
    Prospect,
    best_gain,
    prospect,
)
from shared.protocol import PROTOCOL_VERSION

_START_IT = "Start this back with the same options without `doctor`, and then run `back doctor` again"
MIN_STEPS = 50
"""From this number of steps on, acceptance rates and times are meaningful."""
_MIN_SCORED = 50
_FEW_RIGHT = 0.4
_IDLE_SHARE = 0.8
_LATE_SHARE = 0.5
"""The share of late drafts, and of steps without drafts, above which a back is reported as late. Late drafts
alone cost nothing: a back that sends a draft after each token is often overtaken by the lead.
"""
_CONTENDED = 2.0
"""A larger slowdown of drafting while the lead computes means shared cores. Shared caches cost less."""
_TOO_SLOW = 0.8
"""Largest useful time of a draft token, as a share of a step. Simulated speed-up: 1.7 at 0.3, 1.2 at 0.6."""


def check_version(report: LeadReport, version: str) -> Iterator[Finding]:
    lead = report.lead
    if lead.protocol not in {None, PROTOCOL_VERSION}:
        yield problem(
            f"the lead uses protocol {lead.protocol}, but this installation uses "
            f"{PROTOCOL_VERSION}. Install the same version of llama-duo on both"
        )
    elif lead.version not in {None, version}:
        yield hint(
            f"the lead runs llama-duo {lead.version} and this machine {version}, with the same protocol"
        )
    else:
        yield good(f"llama-duo {version} with protocol {PROTOCOL_VERSION}, like the lead")


def check_lead(report: LeadReport, own: str | None = None) -> Iterator[Finding]:
    """Yield findings from the lead's report: model, policy, T(n), acceptance, each back. `own`: the name of
    the back that examines the lead; None: the lead examines itself.
    """
    if report.lead.promise:
        yield good(f"texts: {report.lead.promise}")
    if report.lead.speculates is False:
        yield problem(
            "speculation is off because the states of the lead's recurrent model are not kept. "
            "Start the lead without --no-kv-unified and with a smaller --parallel"
        )
        return
    planner = report.planner
    if planner is None:
        yield hint("the engine does not answer. It is loading, busy or restarting. Try again later")
    else:
        yield from _check_policy(planner)
        yield from _check_step_times(planner)
        yield from _check_acceptance(planner)
    yield from _check_connected(report, own)
    for back in report.backs:
        yield from check_back(back, planner or PlannerReport(), own)


def check_back(back: BackReport, planner: PlannerReport, own: str | None = None) -> Iterator[Finding]:
    """Yield findings about a back's drafts. own: see `check_lead`."""
    if back.n_invalid_drafts:
        yield problem(
            f"{back.name} has sent {back.n_invalid_drafts} invalid drafts. Install the same "
            "version of llama-duo on both machines"
        )
    if not back.n_drafts:
        if planner.n_steps >= MIN_STEPS:
            yield problem(
                f"{back.name} has sent no drafts since it connected. If requests "
                "other than private ones ran since then, read its log and run `back doctor` on its "
                "machine"
            )
        else:
            yield good(f"{back.name} ({back.model}) is connected and idle")
        return
    if planner.n_steps < MIN_STEPS:
        yield good(f"{back.name} ({back.model}) has sent drafts, but {_too_few(planner)}")
        return
    found = [*_check_back_acceptance(back, planner), *_check_back_speed(back, planner, own)]
    known = back.n_drafts >= _MIN_SCORED and _token_ms(back, planner) and planner.plain_step_ms
    well = (
        f"drafts well{_share_right(back, planner)}"
        if known
        else ("drafts, but too few drafts were sent to say how well")
    )
    yield from found or [good(f"{back.name} ({back.model}) {well}")]


def token_ms_at_work(report: LeadReport, own: str) -> float | None:
    """Return the time per token of the back called `own` as the lead has measured it, in ms; None: too few
    tokens, or the back is not connected.
    """
    planner, back = report.planner, _named(report, own)
    if not planner or not back or planner.n_steps < MIN_STEPS or back.n_drafts < _MIN_SCORED:
        return None
    return _token_ms(back, planner)


def check_draft_speed(draft_ms: float, planner: PlannerReport | None, where: str = "") -> Iterator[Finding]:
    """Compare the time of a drafted token with a step of the lead. where: words on the measurement."""
    step_ms = planner.plain_step_ms if planner else None
    if step_ms is None:
        yield hint(
            f"drafting a token takes {draft_ms:.1f} ms{where}. The time of the lead's steps is not known yet"
        )
        return
    share = draft_ms / step_ms
    words = f"drafting a token takes {draft_ms:.1f} ms{where}, a step of the lead {step_ms:.1f} ms"
    if planner and planner.n_steps < MIN_STEPS and share > SLOW_BACK:
        yield hint(f"{words}, but {_too_few(planner)}")
    elif share > _TOO_SLOW:
        yield problem(
            f"{words}. The draft model is too slow. Use a smaller draft model, more --threads or a GPU"
        )
    elif share > SLOW_BACK:
        yield hint(f"{words}. A smaller draft model, more --threads or a GPU would help. {SLOWER_BACK}")
    else:
        yield good(f"{words} (ratio {share:.2f})")


def check_drafting(
    report: LeadReport | None, own: str, alone_ms: float, where: str, *, is_local: bool
) -> Iterator[Finding]:
    """Judge the time per token of the back called `own`, as measured by the lead if the lead has measured it.

    The time without other work, `alone_ms`, was measured as `where` says. If it is much shorter, the draft
    model is not to blame. `is_local`: the back is on the lead's machine.
    """
    at_work = token_ms_at_work(report, own) if report else None
    planner = report.planner if report else None
    if at_work is not None and at_work <= _CONTENDED * alone_ms:
        yield from check_draft_speed(at_work, planner, " (measured by the lead during requests)")
        return
    yield from check_draft_speed(alone_ms, planner, where)
    if at_work is not None:
        reason = (
            "lead and back share cores or memory bandwidth. Give each its own cores with --cpus"
            if is_local
            else "other programs use the back's cores or memory, or the back drafts for several requests"
        )
        words = f"{alone_ms:.1f} ms alone and {at_work:.1f} ms while the lead computes"
        yield hint(f"drafting a token takes {words}: {reason}")


def check_round_trip(round_trip_ms: float, planner: PlannerReport | None) -> Iterator[Finding]:
    """Compare a round trip on the back's connection with a step."""
    step_ms = planner.plain_step_ms if planner else None
    words = f"a round trip to the lead takes {round_trip_ms:.1f} ms"
    if step_ms is not None and round_trip_ms > step_ms:
        yield hint(
            f"{words}, longer than a step ({step_ms:.1f} ms). After each rejected draft the lead "
            "waits this long for a new draft. A wired network, a nearer machine or more "
            "--n-branches help"
        )
    else:
        yield good(words)


def check_shared_cores(report: LeadReport, cores: frozenset[int], n_threads: int) -> Iterator[Finding]:
    """Yield findings about a back on the lead's own machine. cores: the cores that the back may run on."""
    lead = report.lead
    shared = cores & lead.cores
    if not lead.cores:
        yield hint("the lead on this machine does not report its cores. Set --cpus for both")
    elif shared and lead.n_threads + n_threads > len(cores | lead.cores):
        yield problem(
            f"lead ({count(lead.n_threads, 'thread')}) and back ({count(n_threads, 'thread')}) "
            f"share {count(len(shared), 'core')} of this machine. Both busy-wait and slow each "
            "other down. Set different --cpus for them"
        )
    else:
        yield good("lead and back are on one machine and have enough cores")


def _check_connected(report: LeadReport, own: str | None) -> Iterator[Finding]:
    backs = report.backs
    if own is None:
        if not backs and report.planner and _prospect(report.planner) in {Prospect.SHORT, Prospect.STEEP}:
            yield good("no back is connected, and a back would not help much")
        elif not backs:
            yield problem("no back is connected. Start a back, or invite a machine with lead invite --open")
    elif not backs:
        yield problem(f"this back ({own}) is not connected, and there is no other back. {_START_IT}")
    elif not _named(report, own):
        names = ", ".join(back.name for back in backs)
        yield hint(f"this back ({own}) is not connected. Connected: {names}. {_START_IT}")
    else:
        yield good(
            f"this back ({own}) is connected and runs beside this check, so measurements by the lead "
            "are more reliable than those by this check"
        )


def _named(report: LeadReport, own: str) -> BackReport | None:
    return next((each for each in report.backs if _is_named(each, own)), None)


def _is_named(back: BackReport, own: str) -> bool:
    """Return whether a back has this name: desk, desk:2 (numbered), laptop:desk (joined as laptop)."""
    return re.fullmatch(rf"(.+:)?{re.escape(own)}(:\d+)?", back.name) is not None


def _check_policy(planner: PlannerReport) -> Iterator[Finding]:
    if planner.policy == "off":
        yield problem(
            "speculation is off. Switch it on in the web UI or with PUT /v1/speculation, or start "
            "the lead without --policy off"
        )
    elif planner.policy != "adaptive":
        yield hint(f"--policy {planner.policy} is for comparison only. --policy adaptive is the fastest")


def _prospect(planner: PlannerReport) -> Prospect:
    return prospect({n: ms / 1000 for n, ms in planner.step_ms.items()})


def _check_step_times(planner: PlannerReport) -> Iterator[Finding]:
    """Yield findings about the highest gain from drafts, and whether backs can reach it."""
    found = _prospect(planner)
    if found is Prospect.UNKNOWN:
        yield hint("the time of a step is not known yet. Send a request first")
        return
    gain, n = best_gain(planner.step_ms)
    words = (
        f"a step with one token takes {planner.step_ms[1]:.1f} ms, a step with {n} tokens "
        f"{planner.step_ms[n]:.1f} ms. If drafts with an acceptance of "
        f"{TYPICAL_ACCEPTANCE:.0%} arrive in time, the speed-up is {gain:.1f}. {found.value}"
    )
    if found is Prospect.STEEP:
        yield problem(f"{words} A GPU, more cores or f16 weights (on a Mac: q8_0) may help the lead")
    else:
        yield (hint if found is Prospect.SHORT else good)(words)


def _check_acceptance(planner: PlannerReport) -> Iterator[Finding]:
    n_choices = sum(planner.depths.values())
    if planner.n_steps < MIN_STEPS or not n_choices:
        yield hint(
            f"the lead has run only {count(planner.n_steps, 'step')}. Request a long answer, then "
            "run doctor again"
        )
        return
    per_step = planner.n_committed / n_choices
    n_drafted = planner.n_draft_tokens
    words = f"{per_step:.2f} tokens per step and sequence (1 without drafts)"
    if n_drafted:
        words += f"; {planner.n_accepted_tokens / n_drafted:.0%} of the verified draft tokens were accepted"
    if planner.idle_share > _IDLE_SHARE:
        yield hint(f"{words}. In {planner.idle_share:.0%} of the steps no draft was worth verifying")
    else:
        yield good(words)


def _check_back_acceptance(back: BackReport, planner: PlannerReport) -> Iterator[Finding]:
    source = planner.sources.get(back.name)
    if source and source.n_scored >= _MIN_SCORED and source.n_right < _FEW_RIGHT * source.n_scored:
        yield problem(
            f"only {source.n_right / source.n_scored:.0%} of {back.name}'s tokens that follow correct "
            f"tokens are correct. Its model ({back.model}) predicts the lead's text poorly. Use a "
            "model of the same family and training (base or chat), or a larger model"
        )


def _check_back_speed(back: BackReport, planner: PlannerReport, own: str | None) -> Iterator[Finding]:
    token_ms, step_ms = _token_ms(back, planner), planner.plain_step_ms
    is_own = own is not None and _is_named(back, own)
    if back.n_drafts < _MIN_SCORED:
        return
    # `back doctor` reports the times of its own back itself.
    share = token_ms / step_ms if token_ms and step_ms and not is_own else 0.0
    words = (
        f"{back.name} takes {token_ms or 0.0:.1f} ms per token, a step of the lead {step_ms or 0.0:.1f} ms"
    )
    if share > _TOO_SLOW:
        yield problem(
            f"{words}. Use a smaller draft model, more --threads or a GPU there. `back doctor` "
            "there shows more"
        )
    elif share > SLOW_BACK:
        yield hint(f"{words}. {SLOWER_BACK}")
    elif back.n_stale_drafts > _LATE_SHARE * back.n_drafts and planner.idle_share > _LATE_SHARE:
        yield hint(
            f"{back.n_stale_drafts / back.n_drafts:.0%} of {back.name}'s drafts arrive too late or continue "
            f"a rejected token: {'the times above show' if is_own else 'run `back doctor` there to see'} "
            "whether the network or the draft model is slow"
        )


def _share_right(back: BackReport, planner: PlannerReport) -> str:
    source = planner.sources.get(back.name)
    if not source or source.n_scored < _MIN_SCORED:
        return ""
    # Not the share of the verified tokens: there, every token after a wrong one counts as wrong.
    return f": {source.n_right / source.n_scored:.0%} of its tokens that follow correct tokens are correct"


def _token_ms(back: BackReport, planner: PlannerReport) -> float | None:
    source = planner.sources.get(back.name)
    return source.token_ms if source else None


def _too_few(planner: PlannerReport) -> str:
    return f"too few steps to tell ({planner.n_steps} of {MIN_STEPS})"
