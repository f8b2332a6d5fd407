import argparse
import json

from bench import report


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    report.add_options(parser)
    parser.add_argument("--repeats", type=int, default=3)
    return report.parse(parser, arguments, {"repeats": 1})


def test_the_last_line_is_the_result(capsys):
    report.finish("speed", [{"way": "off", "speed": 1.23456}], parsed(), cores="0")
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["bench"] == "speed"
    assert result["cores"] == "0"
    assert result["rows"] == [{"way": "off", "speed": 1.235}]
    assert result["environment"]["versions"]["numpy"]


def test_the_result_is_written_to_a_file_too(tmp_path, capsys):
    path = tmp_path / "result.json"
    report.finish("speed", [], parsed("--json", str(path)))
    assert json.loads(path.read_text()) == json.loads(capsys.readouterr().out)


def test_quick_has_defaults_of_its_own():
    assert (parsed().repeats, parsed("--quick").repeats) == (3, 1)
