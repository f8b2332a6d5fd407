import pytest

from bench import caches


def test_a_wrong_row_is_a_failure(capsys):
    with pytest.raises(SystemExit) as status:
        caches.main(["--architectures", "llama", "--comparisons", "5", "--bound", "-1"])
    assert status.value.code == 1
    assert '"n_wrong": 5' in capsys.readouterr().out
