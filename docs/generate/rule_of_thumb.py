"""When speculation pays, in numbers: the planner's own expectation and choice, without its machine.

Every draft token is taken to be right with the same chance, if those before it are, and to be there in time.
"""

from collections.abc import Sequence
from typing import NamedTuple

from docs.generate.blocks import table
from lead.engine.speculation.batching import LikeliestFirst
from lead.engine.speculation.drafts import Drafts, DraftToken
from lead.engine.speculation.forecast import Candidate
from lead.engine.speculation.policy import Adaptive, Verify
from shared.diagnostics.prospects import Prospect
from shared.step_cost import StepCost

CHANCES = (0.5, 0.6, 0.7, 0.8, 0.9)
DEPTHS = (1, 2, 3, 4, 6, 8)


class Machine(NamedTuple):
    """T(n) / T(1) for n = 1, 2, …; no more tokens are put into a step."""

    name: str
    ratios: Sequence[float]


# The measured ones are the demo's target in docs/performance.md.
MACHINES = (
    Machine("nearly flat: T(8) = 1.2 T(1)", [1 + 0.2 * n / 7 for n in range(8)]),
    Machine("a CPU core, f16", (1, 0.96, 1.05, 1.32, 1.38, 1.62, 1.76, 2.13)),
    Machine("a CPU core, q8_0", (1, 1.52, 2.45, 2.39, 3.16, 2.96, 3.98, 3.94)),
)


def expected_tokens(chance: float, depth: int) -> float:
    """1 + chance + chance² + … + chance^depth: what the planner expects of a step of depth + 1 tokens."""
    return 1 + sum(_candidate(chance, depth).probabilities)


def tokens_per_step() -> str:
    """A table: rows by chance, columns by draft tokens."""
    header = ["of the draft tokens are right", *(f"{depth} drafted" for depth in DEPTHS)]
    rows = [
        [f"{chance:.0%}", *(f"{expected_tokens(chance, depth):.2f}" for depth in DEPTHS)]
        for chance in CHANCES
    ]
    return table(header, rows)


def speed_ups() -> str:
    """A table: the depth that the adaptive policy takes on some machines, and what it gains."""
    header = ["T(n)", *(f"{chance:.0%} right" for chance in CHANCES)]
    rows = [[machine.name, *(_best(machine, chance) for chance in CHANCES)] for machine in MACHINES]
    return table(header, rows)


def prospects() -> str:
    """A list of what `lead plan`, `lead doctor` and `--check` say of backs."""
    return "\n".join(f"* {each.value}" for each in Prospect if each is not Prospect.UNKNOWN)


def best_depth(machine: Machine, chance: float) -> int:
    """How many draft tokens the adaptive policy has verified."""
    policy = Adaptive(LikeliestFirst(_cost(machine)))
    choice = policy.choose([_candidate(chance, len(machine.ratios) - 1)], 0)
    assert isinstance(choice, Verify)
    return len(choice.drafts[0])


def _best(machine: Machine, chance: float) -> str:
    depth, cost = best_depth(machine, chance), _cost(machine)
    gain = expected_tokens(chance, depth) * cost.seconds(1) / cost.seconds(depth + 1)
    return f"{gain:.2f} ({depth})" if depth else "does not pay"


def _candidate(chance: float, n: int) -> Candidate:
    return Candidate(Drafts("", [], {}, 0.0), n, chain=[DraftToken(0, "back", chance)] * n)


def _cost(machine: Machine) -> StepCost:
    cost = StepCost()
    for n, ratio in enumerate(machine.ratios, 1):
        cost.learn(n, ratio)
    return cost
