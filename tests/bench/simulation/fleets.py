"""A table of speeds that is not simulated: a sequence has 10 tokens/s, 20 with enough of a back."""

import numpy as np

from bench.simulation.fleet_spec import FleetSpec
from bench.simulation.lead_speeds import POWERS, LeadSpeeds
from bench.simulation.scenarios import F16
from lead.simulation.simulated_back import BackSpec

N_RUNNING = (0, 1, 2, 4)


def speeds(n_kinds=1):
    n, power = np.array(N_RUNNING, dtype=float)[:, None], np.array(POWERS)[None, :]
    helped = np.minimum(1.0, np.divide(power, n, out=np.zeros((4, len(POWERS))), where=n > 0))
    drafted = 100 * np.minimum(power, n)
    parts = [10 * n * (1 + helped), drafted, 10 * n * helped, np.minimum(power, n)]
    return LeadSpeeds(N_RUNNING, np.stack([np.stack(parts, axis=-1)] * n_kinds))


def spec(n_leads, n_backs, leads_per_back=1):
    return FleetSpec(F16, BackSpec(0.02), n_leads, n_backs, leads_per_back, acceptances=(0.75,))
