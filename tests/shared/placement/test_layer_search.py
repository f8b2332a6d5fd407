"""The place of a model's layers, decided from sizes, for machines of many kinds."""

from collections import Counter

import pytest

from shared.llama.placement import CACHE, COMPUTING, CPU, EXPERTS, Device, group_of
from shared.placement.layer_search import ModelSizes, place, settle
from shared.settings.model_options import ModelOptions

MIB = 1 << 20
N_LAYERS = 10


def gpu(name, free_mib, **facts):
    return Device(name, "a GPU", free=free_mib * MIB, total=free_mib * MIB, **facts)


def model(experts_mib=0, cache_mib=10):
    """A model with ten layers of 100 MiB, with or without experts. Embeddings and output take 50 MiB each."""
    tensors = {"token_embd.weight": 50 * MIB, "output.weight": 50 * MIB}
    for layer in range(N_LAYERS):
        tensors[f"blk.{layer}.attn_q.weight"] = 40 * MIB
        tensors[f"blk.{layer}.ffn_up.weight"] = 60 * MIB
        if experts_mib:
            tensors[f"blk.{layer}.ffn_up_exps.weight"] = experts_mib * MIB
    return ModelSizes(tensors, N_LAYERS, [cache_mib * MIB] * N_LAYERS)


def placed(*devices, sizes=None, computing=None, **options):
    asked = ModelOptions(**{"fit_target": 0} | options)
    found = {each: n * MIB for each, n in (computing or {}).items()}
    return place(sizes or model(), devices, asked, found)


def used(placement, *places):
    return [placement.used(each) / MIB for each in places]


def test_without_a_device_all_is_on_the_cpu_and_batches_are_as_before():
    found = placed()
    assert (found.n_gpu_layers, found.host_bytes / MIB, found.problem) == (0, 1200, "")
    assert found.options(ModelOptions()).batch_size == 512
    assert str(found) == "all layers are on the CPU"


def test_all_layers_go_to_a_device_that_holds_them():
    found = placed(gpu("A", 1150))
    assert found.n_gpu_layers == 11
    assert used(found, "A", CPU) == [1150, 50]  # the embeddings are read on the CPU


@pytest.mark.parametrize(
    ("free_mib", "n_layers"), [(1149, 10), (1039, 9), (160, 2), (159, 1), (50, 1), (49, 0)]
)
def test_else_as_many_as_it_holds_counted_from_the_output(free_mib, n_layers):
    found = placed(gpu("A", free_mib))
    assert found.n_gpu_layers == n_layers
    assert found.used("A") <= free_mib * MIB
    assert sum(found.parts.values()) == 1200 * MIB


@pytest.mark.parametrize(
    ("free_mib", "options", "batch_size"),
    [
        *((1150, {}, 2048), (1149, {}, 512)),
        *((4000, {"n_cpu_moe": 1}, 512), (4000, {"override_tensor": ("ffn=CPU",)}, 512)),
        *((1150, {"batch_size": 300}, 300), (1149, {"batch_size": 300}, 300)),
    ],
    ids=str,
)
def test_batches_are_larger_where_devices_compute_all(free_mib, options, batch_size):
    sizes = model(experts_mib=20) if "n_cpu_moe" in options else model()
    asked = ModelOptions(**{"fit_target": 0, "n_gpu_layers": 99 if free_mib > 1150 else -1} | options)
    found = place(sizes, [gpu("A", free_mib)], asked, {})
    assert found.options(asked).batch_size == batch_size


@pytest.mark.parametrize(
    ("free_mib", "options", "n_layers"),
    [
        (1150, {"computing": {"A": 1}}, 10),
        (1250, {"fit_target": 100}, 11),
        (1249, {"fit_target": 100}, 10),
        (1600, {"fit_target": 9000}, 11),
    ],
    ids=["intermediate results", *["a margin"] * 2, "at most an eighth"],
)
def test_what_takes_its_part_of_a_device(free_mib, options, n_layers):
    assert placed(gpu("A", free_mib), **options).n_gpu_layers == n_layers


def test_a_cache_that_stays_on_the_host_takes_none_of_a_device():
    found = placed(gpu("A", 1050), kv_offload=False)
    assert (found.n_gpu_layers, found.parts[CACHE, CPU]) == (11, 100 * MIB)


def test_embeddings_that_are_the_output_too_are_loaded_twice():
    sizes = model()
    del sizes.tensors["output.weight"]
    found = placed(gpu("A", 2000), sizes=sizes)
    assert used(found, "A", CPU) == [1150, 50]
    assert placed(sizes=sizes).host_bytes == 1150 * MIB  # on the CPU they are the same


def test_two_devices_share_by_what_is_free_as_llama_cpp_does():
    found = placed(gpu("A", 3000), gpu("B", 1000))
    assert found.tensor_split == (3000, 1000)  # llama.cpp does not know what others will take of it
    # 11 layers in shares of 3 to 1: the first 9 (llama.cpp compares i/11 with .75)
    assert used(found, "A", "B") == [9 * 110, 110 + 50]


def test_unequal_devices_are_filled_one_after_the_other_if_that_does_not_fit():
    devices = gpu("A", 890), gpu("B", 275)
    found = placed(*devices)
    assert (found.n_gpu_layers, found.tensor_split) == (11, (8, 3))
    assert used(found, "A", "B") == [880, 270]


def test_two_devices_that_do_not_hold_all_hold_what_they_can():
    found = placed(gpu("A", 340), gpu("B", 230))
    assert found.n_gpu_layers == 5
    assert all(found.used(name) <= free * MIB for name, free in (("A", 340), ("B", 230)))


FULL, FILLED = (Device("B", "a GPU", free=free_mib * MIB, total=2000 * MIB) for free_mib in (0, 100))


@pytest.mark.parametrize(
    ("device", "options", "cpu_mib"),
    [
        (gpu("B", 300), {"computing": {"B": 500, CPU: 7}}, 57),
        (FULL, {"fit_target": 1024}, 50),
        (FILLED, {"fit_target": 1024}, 50),
    ],
    ids=["too small to compute", "full", "filled by others"],
)
def test_a_device_that_can_take_none_does_not_keep_layers_from_the_rest(device, options, cpu_mib):
    found = placed(gpu("A", 1400), device, **options)
    assert (found.n_gpu_layers, used(found, "A", "B", CPU)) == (11, [1150, 0, cpu_mib])


def test_shares_that_were_asked_for_are_kept():
    found = placed(gpu("A", 600), gpu("B", 600), tensor_split=(1, 3))
    assert (found.tensor_split, found.n_gpu_layers) == ((1, 3), 9)
    assert used(found, "A", "B") == [330, 600]


MIXTURE = model(experts_mib=300)


@pytest.mark.parametrize(
    ("free_mib", "n_layers", "n_experts", "n_mib"),
    [(2000, 11, 8, 1750), (1000, 9, 10, 50 + 8 * 110), (5000, 11, 0, 4150)],
)
def test_of_a_mixture_the_experts_go_to_the_cpu_first_and_layers_once_all_are_there(
    free_mib, n_layers, n_experts, n_mib
):
    found = placed(gpu("A", free_mib), sizes=MIXTURE)
    assert (found.n_gpu_layers, found.n_cpu_moe) == (n_layers, n_experts)
    assert used(found, "A", CPU) == [n_mib, 4200 - n_mib]


@pytest.mark.parametrize(("asked", "n_mib"), [({"n_cpu_moe": 4}, 1200), ({"cpu_moe": True}, 3000)])
def test_experts_that_were_asked_for_on_the_cpu_are_there(asked, n_mib):
    assert placed(gpu("A", 9000), sizes=MIXTURE, **asked).parts[EXPERTS, CPU] == n_mib * MIB


def test_the_first_pattern_that_is_found_in_a_name_decides():
    patterns = (r"blk\.[0-3]\..*exps=B", "exps=CPU")
    devices = gpu("A", 9000), gpu("B", 9000)
    found = placed(*devices, sizes=MIXTURE, override_tensor=patterns, cpu_moe=True)
    assert (found.parts[EXPERTS, "B"], found.parts[EXPERTS, CPU]) == (1200 * MIB, 1800 * MIB)


def test_what_shares_the_hosts_memory_counts_there():
    found = placed(gpu("A", 640, is_shared=True))
    assert found.host_bytes == 1200 * MIB


@pytest.mark.parametrize("asked", [{"n_gpu_layers": 99}, {"n_gpu_layers": -2}])
def test_layers_that_were_asked_for_are_not_lowered_but_refused(asked):
    found = placed(gpu("A", 1000), **asked)
    assert found.n_gpu_layers == 11
    assert found.problem == (
        "A needs 1150 MiB, 100 MiB of them for the KV cache, but only 1000 MiB are free. Lower --n-gpu-layers"
    )


@pytest.mark.parametrize(
    ("sizes", "options", "advice"),
    [
        (MIXTURE, {}, "Lower --n-gpu-layers or raise --n-cpu-moe"),
        (MIXTURE, {"cpu_moe": True}, "Lower --n-gpu-layers"),
        (model(cache_mib=200), {}, "Lower --ctx-size"),
    ],
    ids=["its experts may go to the CPU", "its experts are there", "its cache does not fit"],
)
def test_what_does_not_fit_is_refused_with_what_helps(sizes, options, advice):
    assert placed(gpu("A", 1000), sizes=sizes, n_gpu_layers=99, **options).problem.endswith(f". {advice}")


def test_what_was_asked_for_needs_no_margin():
    assert placed(gpu("A", 1150), n_gpu_layers=99, fit_target=1024).problem == ""


def test_a_cache_that_a_device_cannot_hold_in_one_piece_is_refused_before_llama_cpp_aborts():
    device = gpu("A", 9000, max_tensor=99 * MIB)
    sizes = model(cache_mib=200)
    assert "largest tensor can have 99 MiB" in placed(device, sizes=sizes, n_gpu_layers=99).problem
    assert placed(device, sizes=sizes).n_gpu_layers == 1  # the output keeps nothing
    assert placed(device, sizes=sizes, kv_offload=False).n_gpu_layers == 11


@pytest.mark.parametrize("options", [{"fit": "off"}, {"split_mode": "row"}])
def test_all_layers_are_tried_where_fitting_is_off_or_not_known(options):
    found = placed(gpu("A", 100), **options)
    assert (found.n_gpu_layers, found.problem) == (11, "")


def test_what_was_chosen_are_options_again():
    asked = ModelOptions(threads=3)
    chosen = placed(gpu("A", 2000), sizes=MIXTURE).options(asked)
    assert (chosen.threads, chosen.n_gpu_layers, chosen.n_cpu_moe) == (3, 11, 8)


def test_it_is_chosen_again_until_what_it_needs_to_compute_fits():
    tried = []

    def measure(found):
        tried.append(found.n_gpu_layers)
        return Counter({"A": (30 * found.n_gpu_layers) * MIB, CPU: 7 * MIB})

    found = settle(model(), [gpu("A", 1200)], ModelOptions(fit_target=0), measure)
    assert tried == [11, 8]  # 330 MiB were found for 11 layers: those of 8 are less
    assert found.parts[COMPUTING, "A"] == 240 * MIB
    assert found.parts[COMPUTING, CPU] == 7 * MIB


@pytest.mark.parametrize("n_gpu_layers", [-1, 5, 0])
def test_a_choice_is_measured_once(n_gpu_layers):
    tried = []

    def measure(found):
        tried.append(found.n_gpu_layers)
        return {"A": MIB}

    settle(model(), [gpu("A", 2000)], ModelOptions(n_gpu_layers=n_gpu_layers), measure)
    assert len(tried) == 1


def test_what_cannot_be_is_not_measured():
    found = settle(model(), [gpu("A", 100)], ModelOptions(n_gpu_layers=99), lambda _: pytest.fail("measured"))
    assert found.problem


@pytest.mark.parametrize(
    ("tensor", "group"),
    [
        ("token_embd.weight", "embeddings"),
        ("blk.3.attn_output.weight", "attention"),
        ("blk.3.ffn_gate_inp.weight", "feed-forward"),
        ("blk.3.ffn_gate_up_exps.weight", "experts"),
        ("blk.3.ffn_down_shexp.weight", "feed-forward"),
        ("output_norm.weight", "output"),
    ],
)
def test_tensors_are_shown_in_groups(tensor, group):
    assert group_of(tensor) == group


@pytest.mark.parametrize(
    ("free_mib", "options", "said"),
    [
        (2000, {"sizes": MIXTURE}, "the experts of 8 layers on the CPU: 1750 of 2000 free MiB on A (a GPU)"),
        (9000, {"sizes": MIXTURE, "cpu_moe": True}, "the experts of 10 layers on the CPU: 1150 of 9000"),
        (9000, {"cpu_moe": True}, "11 of 11 layers: 1150 of 9000 free MiB on A (a GPU)"),
        (40, {}, "all layers are on the CPU (A has 40 MiB free)"),
    ],
)
def test_the_log_says_which_layers_are_where(free_mib, options, said):
    assert said in str(placed(gpu("A", free_mib), **options))
