import hmac

import pytest

from lead.settings import keys as module
from lead.settings.keys import ANYONE, Key, Keyring, Principal, Role, named_keys, role_keys
from shared.errors import ConfigError

ALICE = Principal(Role.CLIENT, "alice")
DESK = Principal(Role.BACK, "desk")


def test_a_key_identifies_its_principal():
    ring = Keyring([Key(ALICE, "abc"), Key(DESK, "def")])
    assert [ring.identify(secret) for secret in ("abc", "def", "abcdef", "", "ä\udcff", None)] == [
        *(ALICE, DESK),
        *(None, None, None, None),
    ]


def test_keys_have_numbers_of_their_own_even_under_one_name():
    ring = Keyring([Key(ALICE, "a"), Key(ALICE, "b"), Key(DESK, "c"), Key(ALICE, "a")])
    numbers = [ring.identify(secret).number for secret in "abc"]
    assert len({*numbers, ANYONE.number}) == 4


def test_a_key_has_the_same_id_in_any_order_and_tells_nothing_of_itself():
    one, other = (Key(ALICE, secret) for secret in ("one", "other"))
    first, second = Keyring([one, other]), Keyring([other, one])
    assert first.identify("one").id == second.identify("one").id
    assert first.identify("one").id != first.identify("other").id
    assert "one" not in repr(first.identify("one"))


def test_without_keys_the_log_says_why_a_request_may_do_everything():
    assert str(Keyring().identify(None)) == "admin (no keys are set)"


def test_without_keys_every_request_is_anyones():
    assert Keyring().identify(None) == Keyring().identify("x") == ANYONE


def test_all_keys_are_compared_even_after_a_match(monkeypatch):
    compared = []
    monkeypatch.setattr(
        module.hmac, "compare_digest", lambda *pair: compared.append(pair) or pair[0] == pair[1]
    )
    Keyring([Key(ALICE, "a"), Key(DESK, "b"), Key(ALICE, "c")]).identify("a")
    assert len(compared) == 3


def test_hashes_are_compared_instead_of_keys(monkeypatch):
    lengths = set()
    real = hmac.compare_digest
    monkeypatch.setattr(
        module.hmac, "compare_digest", lambda *pair: lengths.update(map(len, pair)) or real(*pair)
    )
    Keyring([Key(ALICE, "abc")]).identify("a much longer key")
    assert lengths == {64}


def test_a_key_is_never_shown():
    ring = Keyring([Key(ALICE, "secret")])
    assert "secret" not in repr([Key(ALICE, "secret"), ring, vars(ring)])


@pytest.mark.parametrize("secret", ["", "two words", "tab\t", "zwölf"])
def test_a_key_that_a_header_cannot_carry_is_refused(secret):
    with pytest.raises(ConfigError, match="the key of client alice is empty or has characters") as error:
        Keyring([Key(ALICE, secret)])
    assert not secret or secret not in str(error.value)


def test_one_key_cannot_have_two_roles():
    with pytest.raises(ConfigError, match="client alice and back desk have the same key"):
        Keyring([Key(ALICE, "same"), Key(DESK, "same")])


def test_several_keys_of_a_role_are_numbered(tmp_path):
    file = tmp_path / "keys"
    file.write_text("# people\n\n  third  \nfourth\n")
    keys = list(role_keys(Role.CLIENT, ["first", "second"], file))
    assert [(key.principal.name, key.secret) for key in keys] == [
        ("client-1", "first"),
        ("client-2", "second"),
        ("client-3", "third"),
        ("client-4", "fourth"),
    ]


def test_a_file_can_hold_named_keys_of_all_roles(tmp_path):
    file = tmp_path / "keys"
    file.write_text("client alice abc\n# machines\nback desk\tdef\nadmin root ghi\n")
    assert [(str(key.principal), key.secret) for key in named_keys(file)] == [
        ("client alice", "abc"),
        ("back desk", "def"),
        ("admin root", "ghi"),
    ]


@pytest.mark.parametrize("line", ["alice abc", "king alice abc", "client alice abc def"])
def test_an_invalid_line_is_named_by_its_number_and_not_shown(tmp_path, line):
    file = tmp_path / "keys"
    file.write_text(f"client bob xyz\n{line}\n")
    with pytest.raises(ConfigError, match="key 2: write a role") as error:
        list(named_keys(file))
    assert "abc" not in str(error.value)


@pytest.mark.parametrize("read", [named_keys, lambda file: role_keys(Role.BACK, [], file)])
@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "No such file"), (b"# none\n", "contains no key"), (b"\xff", "not text")],
)
def test_a_file_without_keys_is_an_error(tmp_path, read, content, complaint):
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=complaint):
        list(read(file))
