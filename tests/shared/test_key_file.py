import pytest
from pydantic import SecretStr

from shared.errors import ConfigError
from shared.key_file import read_key


def test_a_given_key_stands_before_a_file(tmp_path):
    (tmp_path / "key").write_text("filed\n")
    assert read_key(None, tmp_path / "key") == "filed"
    assert read_key(SecretStr("given"), tmp_path / "key") == "given"


@pytest.mark.parametrize("text", ["", "two words", "zwölf"])
def test_what_is_no_key_is_refused_and_not_shown(tmp_path, text):
    (tmp_path / "key").write_text(text)
    for given, file in ((SecretStr(text), None), (None, tmp_path / "key")):
        with pytest.raises(ConfigError, match="characters that are not allowed in a key") as error:
            read_key(given, file)
        assert not text or text not in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read the key in .*missing: No such file"):
        read_key(None, tmp_path / "missing")


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "key").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="the file is not text"):
        read_key(None, tmp_path / "key")
