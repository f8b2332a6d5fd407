import json

from bench import models
from bench.mtp import main
from bench.tiny_models import TinyModel, write_tiny_model


def test_a_row_compares_heads_back_and_both(tmp_path, capsys, monkeypatch):
    path = tmp_path / "model.gguf"
    write_tiny_model(TinyModel("qwen35", n_layers=5, settings={"nextn_predict_layers": 1}), path)
    monkeypatch.setattr(models, "with_heads", lambda: path)
    main(["--quick", "--tokens", "24"])
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert (row["heads"], row["back"]) == (0.8, 0.8)
    assert all(row[name] > 0 for name in ("plain", "with_heads", "with_back", "with_both", "over_heads"))
