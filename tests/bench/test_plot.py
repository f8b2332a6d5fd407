import pytest

from bench.plot import plot_lines, plot_speed

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.filterwarnings("default")


def test_each_configuration_has_a_chart(tmp_path):
    rows = [
        {"configuration": cell, "way": way, "tokens_per_second": 2.0, "low": 1.0, "high": 3.0}
        for cell in ("0.4G:f16, T=0", "0.4G:f16, T=1")
        for way in ("no back", "adaptive")
    ]
    paths = plot_speed(rows, tmp_path / "charts")
    assert [path.name for path in paths] == ["speed-0.4G-f16-T-0.svg", "speed-0.4G-f16-T-1.svg"]
    assert all("<svg" in path.read_text() for path in paths)


def test_lines_leave_out_what_is_not_known(tmp_path):
    rows = [{"x": 1, "y": None, "g": "a"}, {"x": 2, "y": 3.0, "g": "b"}]
    path = plot_lines(rows, tmp_path, name="n", x="x", y="y", group="g", labels=("x", "y"))
    assert path.exists()
