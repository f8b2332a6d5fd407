"""The tuned constants of speculation, with the effects that each trades off. `bench simulate` can vary them.

Numbers that only bound memory or guard a division are in the modules that use them.
"""

from dataclasses import dataclass

from shared.step_cost import StepCostConstants

MAX_DEPTH = 32
"""The maximum number of draft tokens of a sequence per step. It is here so that servers can read it without
the engine.
"""


@dataclass(frozen=True, slots=True)
class SpeculationConstants(StepCostConstants):
    """The constants of speculation, and of T(n) (`shared.step_cost`).

    A field whose name ends in `_decay` is the weight of the past at each new sample: 1 - 1 / n if about n
    samples count.
    """

    # The probability that a draft token is accepted: `forecast`

    confidence_edges: tuple[float, ...] = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96, 0.99)
    """Edges of the bins of confidence, which are narrow at the top, where most tokens are."""
    acceptance_decay: float = 0.97
    """The decay per draft token in a bin: about the last 30 count. Higher is smoother, lower adapts
    faster."""
    mean_acceptance_decay: float = 0.99
    """The decay per draft token for the mean of all bins: about the last 100 count. The mean rates tokens
    that are not drafted yet.
    """
    acceptance_prior: float = 3.0
    """The weight of a source's own confidence, as a number of outcomes in its record."""
    unknown_acceptance: float = 0.5
    """The assumed acceptance of sources that state no confidence, before any of their tokens was scored."""

    # When further draft tokens arrive: `arrivals`

    arrival_gain: float = 0.2
    """The weight of a new sample in means and mean deviations. Higher adapts faster, lower is less noisy."""
    patience_deviations: float = 4.0
    """The engine waits for a source until this many mean deviations beyond its mean time."""
    min_patience_s: float = 0.002
    """Seconds added to the limit of `patience_deviations`, for sources whose times hardly deviate."""
    min_remaining_s: float = 0.0005
    """The minimum time, from now, until overdue tokens are expected."""
    pause_factor: float = 4.0
    """A gap of this many times the mean is a pause, which is not learned as the time of a token."""
    max_pauses: int = 3
    """The mean is learned again after this many pauses in a row, or if a third of the gaps are pauses."""

    # The adaptive policy: `policy`

    long_run_weight: float = 0.75
    """The weight of the long-run rate in the value of a second; the rest is this moment's rate. In the worst
    of 94 simulated cells, adaptive had this part of the speed of the best fixed or sync depth: .92 with
    weight 0, .95 with .5, .98 with .65 and .8, .97 with 1."""
    speedup_decay: float = 0.98
    """The weight that the long-run rate keeps with each step: about the last 50 steps count."""
    speedup_min_steps: int = 8
    """The number of steps before the long-run rate counts."""
    explore_every: int = 32
    """Every n-th choice to verify may measure another T(n). Measuring costs tokens, but T(n) changes."""
    stale_after: int = 128
    """After this many steps, T(n) is measured again for sizes next to the best, or if it is doubtful."""
    max_awaited: int = 10
    """The maximum number of tokens to wait for. More would cost computing time for rare gains."""

    # Whether to speculate at all: `guard`

    guard_loss: float = 1.5
    """A pause begins when drafts have lost the time of this many steps without drafts."""
    first_pause: int = 64
    """The number of steps of the first pause."""
    pause_growth: int = 4
    """The steps of each further pause, as a multiple of the steps of the pause before it."""
    longest_pause: int = 1024
    """The maximum number of steps of a pause. In longer pauses the engine notices later that drafts pay
    again; shorter pauses mean more trials. A trial costs up to six short steps: it changes the width twice
    and reads the text that was missed."""
    longest_pause_s: float = 30.0
    """The maximum number of seconds of a pause. If steps take long, a trial is cheap in comparison."""
    look_every: int = 8
    """During a pause, lookups draft every n steps. A lookup that was right for n tokens ends the pause."""

    # How wide steps are on a GPU: `widths`

    width_decay: float = 0.95
    """The decay, per step, of the yields of each width: about the last 20 steps count."""

    # What backs are asked to draft: `tuning`

    tune_every: int = 16
    """Steps between two updates of backs."""
    max_ahead: int = 16
    """The maximum number of tokens that a back drafts ahead. More would be ready earlier, but in vain more
    often."""
    spare_ahead: int = 2
    """Backs draft this many tokens more than twice the depth in use, even if that is 0, so that improvement
    shows."""
    ahead_decay: float = 0.98
    """The decay, per step, of the largest recent depth."""
    confidence_share: float = 0.5
    """Backs stop at this share of the confidence that is worth verifying, as they misjudge themselves."""
    max_min_confidence: float = 0.3
    """The lead never asks backs to stop above this confidence."""
    min_confidence_change: float = 0.05
    """Smaller changes are not worth a message."""

    # Draft tokens of sources in the engine, and of drafts in general: `manager`

    max_local_tokens: int = 16
    """The maximum number of tokens requested from a lookup. More would help with long copies, but cost time
    in each step."""
    enough_local_tokens: int = 8
    """A lookup with this many draft tokens left does not draft."""
    usual_answer: float = 128.0
    """The assumed length of answers before any has ended. Reading a prompt must pay off over an answer."""
    answer_decay: float = 0.9
    """The decay, per answer, of the mean length of answers."""
    inline_upper_deviations: float = 2.0
    """Standard deviations added to the mean acceptance of an inline drafter. With more, it drafts where that
    does not pay; with less, it gives up after bad luck. In the worst of 150 simulated cells, adaptive had
    this part of the best speed of a fixed depth or of no drafts: .82 with 0 deviations, .96 with 1, .99 with
    2, .97 with 3.
    """
    inline_exploration: float = 0.005
    """The share of the engine's time for trying inline drafts that seem not to pay."""
    first_exploration: float = 0.02
    """The same share until the drafter is known, so that a good draft model is not rejected by chance."""
    max_exploration: float = 16.0
    """The maximum time of one attempt, in steps, including the time to read text that the drafter has
    missed.
    """
    min_probability: float = 0.01
    """Drafts are cut where their probability falls below this: more tokens would seldom pay."""


DEFAULTS = SpeculationConstants()
