"""T(n) of real devices, measured or published, to simulate hardware that is not available.

T(n) is n divided by the tokens per second that llama-bench or llama-batched-bench reached with n tokens per
step. Values that were not published are assumed, and marked as such.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lab.simulation.machine import HOST, HostTime, StepTable

Ratios = Mapping[int, float]
"""T(n) / T(1) by n."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """A target with these `weights` on the device `name`. source: where T(n) was published.

    assumed: values that were not measured. draft_1b_s, draft_8b_s: seconds per token of such a draft model in
    the engine, all assumed except the H200's; None: it does not fit. host: the engine's own time between
    steps on this hardware; the default is the time on the project's machine.
    """

    name: str
    weights: str
    steps: StepTable
    source: str
    assumed: str = ""
    draft_1b_s: float | None = None
    draft_8b_s: float | None = None
    host: HostTime = HOST

    @property
    def title(self) -> str:
        return self.steps.name


def _hardware(  # noqa: PLR0917 - a row of the table
    name: str,
    maker: str,
    weights: str,
    first_ms: float,
    ratios: Ratios,
    source: str,
    assumed: str = "",
    *,
    drafts_ms: tuple[float | None, float | None] = (None, None),
    settling_ms: tuple[float, float] = (0.0, 0.0),
    host: HostTime = HOST,
) -> Hardware:
    """Make a row of the table.

    name: for --device. maker: for titles. first_ms: T(1). drafts_ms: per token of 1B and 8B models.
    """
    points = tuple((n, first_ms * ratio / 1000) for n, ratio in sorted(ratios.items()))
    steps = StepTable(f"{maker}, {weights}", points, tuple(ms / 1000 for ms in settling_ms))
    one, eight = (None if ms is None else ms / 1000 for ms in drafts_ms)
    return Hardware(name, weights, steps, source, assumed, one, eight, host)


_HERE = "measured by this project, docs/performance.md"
_STRIX = "LaurentZuijdwijk/llama.cpp#4 (one matrix)"
_H200_4 = {
    1: 1, 2: 1.062, 3: 1.259, 4: 1.41, 5: 1.586, 6: 1.724, 7: 1.886, 8: 2.048, 9: 2.317, 12: 2.41,
    16: 2.466, 32: 3.034, 64: 3.966,
}  # fmt: skip
_H200_20 = {
    1: 1, 2: 1.044, 3: 1.242, 4: 1.443, 5: 1.689, 6: 1.924, 7: 2.114, 8: 2.315, 9: 2.36, 12: 2.383,
    16: 2.416, 32: 3.031, 64: 4.083,
}  # fmt: skip
_3090 = {1: 1, 2: 1.107, 3: 1.189, 4: 1.318, 5: 1.52, 6: 1.717, 7: 1.94, 8: 2.124, 9: 2.1, 16: 2.13, 32: 3.1}
_4090 = {1: 1, 2: 1.02, 3: 1.04, 4: 1.08, 5: 1.14, 6: 1.2, 7: 1.27, 8: 1.35, 9: 1.28, 16: 1.3, 32: 1.5}
_M2_Q8 = {1: 1, 2: 1.158, 3: 1.283, 4: 1.408, 5: 1.6, 6: 1.8, 7: 1.95, 8: 2.1, 9: 2.75, 32: 2.85}
_M2_Q4_K = {1: 1, 2: 1.62, 3: 2.2, 4: 2.47, 5: 2.77, 6: 3.4, 8: 3.5, 9: 3.6, 32: 3.8}
_SPARK = {1: 1, 2: 1.01, 3: 1.02, 4: 1.05, 5: 1.08, 6: 1.12, 7: 1.16, 8: 1.2, 9: 1.15, 16: 1.17, 32: 1.25}
_OFFLOADED = {1: 1, 2: 1.03, 3: 1.06, 4: 1.1, 5: 1.15, 6: 1.2, 8: 1.3, 16: 1.7, 32: 2.4}

_H200_HOST = HostTime(step_s=280e-6, planning_s=200e-6)
"""The measured time of a token above T(1), and its further time while a useless back is connected."""

# fmt: off
H200_8B = _hardware("h200", "H200", "8B Q4_0 (4.1 GB)", 2.9, _H200_4, _HERE,
                    drafts_ms=(1.6, None), settling_ms=(1.0, 3.0), host=_H200_HOST)
H200_20GB = _hardware("h200", "H200", "40B Q4_0 (20 GB)", 8.94, _H200_20, _HERE,
                      drafts_ms=(1.6, 3.5), settling_ms=(1.4, 4.5), host=_H200_HOST)
H200_70B = _hardware("h200", "H200", "70B Q4_0", 17.9, _H200_20, _HERE, "twice the 20 GB target's times",
                     drafts_ms=(1.6, 3.5), settling_ms=(2.6, 9.0), host=_H200_HOST)
RTX_4090 = _hardware("rtx4090", "RTX 4090", "32B Q4_K", 25, _4090, "llama.cpp#15131 (8B BF16)",
                     "T(1), T(n) of Q4_K, and the price of another width",
                     drafts_ms=(2.0, None), settling_ms=(1.5, 7.0))
RTX_3090_PAIR = _hardware("rtx3090x2", "2 x RTX 3090", "70B Q4_0", 60, _3090,
                          "llama.cpp#15802 (8B Q4_0 on one)",
                          "T(1), T(n) for n > 8, and the price of another width",
                          drafts_ms=(3.0, 8.0), settling_ms=(2.0, 9.0))
M2_ULTRA = _hardware("m2-ultra", "M2 Ultra", "70B Q8_0", 118, _M2_Q8, "llama.cpp#16894 (7B Q8_0, up to 4)",
                     "T(1), and T(n) for n > 4", drafts_ms=(5.0, 13.0))
M2_ULTRA_Q4_K = _hardware("m2-ultra", "M2 Ultra", "70B Q4_K", 75, _M2_Q4_K,
                          "llama.cpp#10581 (32B Q4_K, up to 6)", "T(1), and T(n) for n > 7",
                          drafts_ms=(5.0, 13.0))
SPARK = _hardware("dgx-spark", "DGX Spark", "70B Q4_0", 205, _SPARK, "none is published",
                  "all, as limited by memory bandwidth", drafts_ms=(6.0, 25.0))
STRIX_HALO = _hardware("strix-halo", "Strix Halo (Vulkan)", "32B Q8_0", 150,
                       {1: 1, 2: 1.04, 3: 6.0, 4: 1.06, 5: 9.6, 6: 3.0}, _STRIX, "T(1)",
                       drafts_ms=(6.0, None))
OFFLOADED = _hardware("partial-offload", "12 GB laptop GPU, the rest in RAM", "27B Q4_K", 190, _OFFLOADED,
                      "a report of 5.3 tokens/s (10.8 with MTP)",
                      "T(n), nearly flat because RAM limits it", drafts_ms=(4.0, None))
PRINCIPAL = (H200_8B, H200_20GB, H200_70B, RTX_4090, RTX_3090_PAIR, M2_ULTRA, M2_ULTRA_Q4_K, SPARK,
             STRIX_HALO, OFFLOADED)
"""The kinds of T(n): short and long steps, flat and steep, with and without a price of another width."""
HARDWARE = (
    *PRINCIPAL,
    _hardware("rtx3090", "RTX 3090", "7B Q5_1", 9.1,
              {1: 1, 2: 1.02, 3: 1.07, 4: 1.12, 5: 1.3, 6: 1.4, 8: 1.64}, "llama.cpp#5434",
              "the price of another width", drafts_ms=(2.0, None), settling_ms=(1.0, 4.0)),
    _hardware("rtx3090", "RTX 3090", "granite 3B mixture f16", 4.5,
              {1: 1, 2: 1.21, 3: 1.32, 4: 1.41, 5: 1.5, 6: 1.54, 8: 1.62}, "llama.cpp#15767",
              drafts_ms=(2.0, None)),
    _hardware("rx6800", "RX 6800", "7B Q4_1", 16, {1: 1, 2: 1.02, 4: 1.13, 8: 1.75}, "llama.cpp#5351"),
    _hardware("rx6800", "RX 6800", "7B Q4_K", 18, {1: 1, 2: 1.13, 4: 1.53, 8: 2.7}, "llama.cpp#5351"),
    _hardware("mi50x2", "2 x MI50", "27B Q8_0", 31, {1: 1, 2: 1.17, 4: 1.36, 8: 2.22, 9: 3.45, 32: 4.7},
              "mx-llama.cpp#10"),
    _hardware("strix-halo", "Strix Halo (Vulkan)", "32B Q4_K", 90,
              {1: 1, 2: 1.08, 3: 2.4, 4: 2.1, 5: 3.3, 6: 3.4}, _STRIX, "T(1)", drafts_ms=(6.0, None)),
    _hardware("m2-ultra", "M2 Ultra", "32B Q4_K", 38.5, {1: 1, 2: 1.62, 3: 2.2, 4: 2.47, 5: 2.77, 6: 3.4},
              "llama.cpp#10581", drafts_ms=(5.0, None)),
    _hardware("m5-max", "M5 Max (MLX)", "30B-A3B mixture, 6 bit", 8.5,
              {1: 1, 2: 1.59, 3: 1.85, 5: 2.44, 8: 3.32}, "vllm-mlx#699"),
    _hardware("glm-air", "GPUs with CUDA", "GLM-4.5-Air mixture", 5.9,
              {1: 1, 2: 3.05, 3: 3.5, 4: 3.9, 6: 4.6, 8: 5.1}, "ik_llama.cpp#1630"),
)
# fmt: on
"""All hardware. Several rows may have the same name."""


NAMES = tuple(dict.fromkeys(each.name for each in HARDWARE))


def hardware_named(name: str) -> list[Hardware]:
    """Return all hardware with this name; empty if there is none."""
    return [each for each in HARDWARE if each.name == name]
