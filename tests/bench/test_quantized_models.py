from bench import quantized_models
from bench.quantized_models import quantized_target


def test_a_target_is_written_once(monkeypatch, tmp_path):
    source = tmp_path / "bench-target-f16-abc.gguf"
    written = []

    def write(source, path, weights):
        written.append((source.stem, weights))
        path.touch()

    monkeypatch.setattr(quantized_models.models, "shipped_target", lambda _weights: source)
    monkeypatch.setattr(quantized_models, "quantize", write)
    path = quantized_target("small", "q4_k_m")
    assert path == quantized_target("small", "q4_k_m")
    assert path.name == "bench-small-q4_k_m-abc.gguf"
    assert written == [("bench-target-f16-abc", "q4_k_m")]
