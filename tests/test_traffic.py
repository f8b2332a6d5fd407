from shared.llama.slot_parts import WindowGuard
from tests.traffic import Traffic, TrafficRun, compare


def test_a_cell_that_was_overwritten_is_noticed(tiny_model, monkeypatch):
    monkeypatch.setattr(WindowGuard, "decoded", lambda *_: None)
    assert compare(Traffic(tiny_model("gemma3"), swa_full=True), 60).worst > 0.1


def test_a_cache_that_is_too_small_for_all_is_filled_to_the_end(tiny_model):
    run = TrafficRun(Traffic(tiny_model("llama"), n_ctx=256, n_slots=2, endless=1.0))
    lengths = []
    for _ in range(150):
        run.step()
        lengths.append(run.target.n_cells)
    run.close()
    assert max(lengths) == 256
