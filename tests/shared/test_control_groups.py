from shared.control_groups import own_groups


def found(tmp_path, text):
    own = tmp_path / "own"
    own.write_text(text)
    groups = tmp_path / "groups"
    return [(str(folder.relative_to(groups)), is_v2) for folder, is_v2 in own_groups("cpu", groups, own)]


def test_a_group_comes_before_those_above_it(tmp_path):
    assert found(tmp_path, "0::/a/b\n") == [("a/b", True), ("a", True), (".", True)]


def test_of_the_first_version_only_those_of_the_controller_count(tmp_path):
    own = "5:memory:/x\n4:cpuacct,cpu:/a\n3:cpuset:/y\n"
    assert found(tmp_path, own) == [("cpu/a", False), ("cpu", False)]


def test_there_are_none_elsewhere_than_on_linux(tmp_path):
    assert not list(own_groups("cpu", tmp_path, tmp_path / "missing"))
