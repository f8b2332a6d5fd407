"""`python -m lab.parts.smoke`: checks that the installed llama.cpp computes here; exit status 0 if it does.

A build with GCC 11 or 12 for a CPU with AMX crashes at the first quantized decode. pip may have such a build
in its cache from an earlier, plain installation.
"""

from shared.llama.model import Model
from shared.llama.span import Span
from shared.memory.plan_memory import plan_memory
from shared.model_files.builtin import builtin_target
from shared.settings.model_options import ModelOptions

_N_TOKENS = 32


def main() -> None:
    """Decode a few tokens, one and several at a time."""
    options = ModelOptions(ctx_size=256, parallel=1, batch_size=_N_TOKENS, threads=1)
    model = Model(plan_memory(builtin_target(), options))
    model.decode([Span(0, 0, list(range(1, 1 + _N_TOKENS)), 1)])
    model.decode([Span(0, _N_TOKENS, [1], 1)])
    model.close()


if __name__ == "__main__":
    main()
