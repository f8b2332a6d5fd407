"""The tuned constants of speculation, and the trade-off of each. `bench simulate` can vary them.

Numbers that only bound memory or guard a division are next to the code that uses them.
"""

from dataclasses import dataclass

from shared.step_cost import StepCostConstants

MAX_DEPTH = 32
"""No step verifies more draft tokens of a sequence; here, where servers can read it without the engine."""


@dataclass(frozen=True, slots=True)
class SpeculationConstants(StepCostConstants):
    """The constants of speculation, and those of T(n) (`shared.step_cost`).

    Fields that end in `_decay` are the weight of the past at each new sample: 1 - 1 / memory.
    """

    # The probability that a draft token is accepted: `forecast`

    confidence_edges: tuple[float, ...] = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96, 0.99)
    """Edges of the bins of confidence, narrow at the top, where most tokens are: precise against quick."""
    acceptance_decay: float = 0.97
    """Per draft token in a bin, about 30 count: a smooth estimate against following the text."""
    mean_acceptance_decay: float = 0.99
    """The same of all bins together, about 100 count: of tokens that are not drafted yet less is known."""
    acceptance_prior: float = 3.0
    """Weight of a source's own confidence, in draft tokens: trust in the source against its record."""
    unknown_acceptance: float = 0.5
    """For sources that state no confidence, before anything of theirs was verified."""

    # When further draft tokens arrive: `arrivals`

    arrival_gain: float = 0.2
    """Weight of a new sample in means and mean deviations: follows the network against noise."""
    patience_deviations: float = 4.0
    """A source later than its mean by this many deviations is not waited for: patience against lost time."""
    min_patience_s: float = 0.002
    """Added to these deviations, for sources that hardly deviate."""
    min_remaining_s: float = 0.0005
    """Overdue tokens are expected after this time, at the earliest."""
    pause_factor: float = 4.0
    """A gap this many times the mean is a pause, and is not learned as the time of a token …"""
    max_pauses: int = 3
    """… unless this many follow each other, or more than a third of the gaps are: then the mean was wrong and
    is learned anew."""

    # The adaptive policy: `policy`

    long_run_weight: float = 0.75
    """The weight of the long-run rate in what a second is worth; the rest is this moment's. In the worst of
    94 simulated cells, adaptive over the best fixed or sync depth was .92 with 0, .95 with .5, .98 with .65
    and .8, .97 with 1."""
    speedup_decay: float = 0.98
    """The weight that the long-run rate keeps with each step: about the last 50 count."""
    speedup_min_steps: int = 8
    """Steps before the long-run rate counts."""
    explore_every: int = 32
    """Every n-th choice to verify may deviate to measure a T(n): lost tokens against outdated values."""
    stale_after: int = 128
    """Steps after which T(n) is measured again that is next to the best choice, or looks too large."""
    max_awaited: int = 10
    """No policy waits for more tokens than this: computing time against rare gains."""

    # Whether to speculate at all: `guard`

    guard_loss: float = 1.5
    """A pause begins when speculation has lost so many steps without drafts: patience against lost time."""
    first_pause: int = 64
    """Steps of the first pause."""
    pause_growth: int = 4
    """Each further one takes so many times as long …"""
    longest_pause: int = 1024
    """… up to so many steps: noticing soon that drafts would pay now against the time of trials. Where steps
    are short, one takes up to six: the way to another width and back, and the text that was missed."""
    longest_pause_s: float = 30.0
    """The same in seconds, where steps take long: then a trial costs little in comparison."""
    look_every: int = 8
    """In a pause lookups are asked each so many steps. One that was right for as long ends it."""

    # How wide steps are on a GPU: `widths`

    width_decay: float = 0.95
    """The weight of the past at each step, of what each width would have yielded: about the last 20 count."""

    # What backs are asked to draft: `tuning`

    tune_every: int = 16
    """Steps between two updates."""
    max_ahead: int = 16
    """Tokens that a back may be ahead of the committed ones: ready drafts against drafting in vain."""
    spare_ahead: int = 2
    """Tokens beyond twice the depth in use, even if that is 0, so that a back's improvement is noticed."""
    ahead_decay: float = 0.98
    """Per step, of the largest recent depth."""
    confidence_share: float = 0.5
    """Backs stop at this share of the confidence that is worth verifying: they misjudge themselves."""
    max_min_confidence: float = 0.3
    """Backs never stop above this confidence."""
    min_confidence_change: float = 0.05
    """Smaller changes are not worth a message."""

    # Draft tokens of sources in the engine, and of drafts in general: `manager`

    max_local_tokens: int = 16
    """Tokens that a source in the engine is asked for: long copies against time in each step."""
    enough_local_tokens: int = 8
    """With this many left it is not asked again."""
    usual_answer: float = 128.0
    """Tokens of an answer, before any has ended: what it may take to read a prompt with a draft model."""
    answer_decay: float = 0.9
    """Per answer, of their mean length."""
    inline_upper_deviations: float = 2.0
    """Standard deviations above its mean at which an inline drafter's next token is valued: drafts that do
    not pay against giving up after bad luck. In the worst of 150 simulated cells, adaptive over the best
    fixed depth, or none, was .82 with 0, .96 with 1, .99 with 2, .97 with 3."""
    inline_exploration: float = 0.005
    """Share of the engine's time in which it drafts although that does not seem to pay."""
    first_exploration: float = 0.02
    """The same at first: some slower steps against a draft model that seems slow, or wrong by chance."""
    max_exploration: float = 16.0
    """Steps that one such attempt may take: what a sequence's draft needs before it can begin."""
    min_probability: float = 0.01
    """Drafts are cut where they are less likely than this to be right: computing time against rare gains."""


DEFAULTS = SpeculationConstants()
