import json

from bench import models
from bench.mtp import main


def test_a_row_compares_heads_back_and_both(tiny_with_heads, capsys, monkeypatch):
    monkeypatch.setattr(models, "with_heads", lambda: tiny_with_heads("qwen35"))
    main(["--quick", "--tokens", "24"])
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert (row["heads"], row["back"]) == (0.8, 0.8)
    assert all(row[name] > 0 for name in ("plain", "with_heads", "with_back", "with_both", "over_heads"))
