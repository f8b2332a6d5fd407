import pytest

from lead.pairing.members import INVITATION_SECONDS, Members, NotInvitedError
from lead.settings.keys import Role, named_keys


@pytest.fixture
def members(clock):
    return Members(clock=clock, wall_clock=lambda: 1e9)


def join(members, secret, name="laptop"):
    return members.join(secret, name)


@pytest.mark.parametrize("role", [Role.BACK, Role.CLIENT])
def test_a_machine_joins_with_a_code_and_is_known_by_its_key(members, role):
    member, key = join(members, members.invite(role))
    assert (member.name, member.role, member.joined_at) == ("laptop", role, 1e9)
    known = members.identify(key)
    assert known == member.principal
    assert (known.number, known.role) == (member.number, role)


@pytest.mark.parametrize("key", [None, "", "x", "\ud800", "k" * 10_000])
def test_another_key_is_nobodys(members, key):
    join(members, members.invite(Role.BACK))
    assert members.identify(key) is None


def test_a_code_works_once(members):
    secret = members.invite(Role.BACK)
    join(members, secret)
    with pytest.raises(NotInvitedError):
        join(members, secret)
    assert members.n_refused == 1


def test_a_code_works_for_ten_minutes(members, clock):
    early, late = members.invite(Role.BACK), members.invite(Role.BACK)
    clock.now = INVITATION_SECONDS - 1
    join(members, early)
    clock.now = INVITATION_SECONDS
    assert members.n_invited == 0
    with pytest.raises(NotInvitedError):
        join(members, late)


def test_a_code_of_an_earlier_start_works_for_the_rest_of_its_time(members, clock):
    secret, other = members.invite(Role.CLIENT), members.invite(Role.BACK)
    kept = members.invitations
    assert {each.until for each in kept} == {1e9 + INVITATION_SECONDS}
    # The clock is another one after a restart; that of the wall may have been set back.
    again = Members(invited=kept, clock=clock, wall_clock=lambda: 1e9 + 400)
    assert join(again, secret)[0].role is Role.CLIENT
    clock.now = 201
    assert again.n_invited == 0
    set_back = Members(invited=kept, clock=clock, wall_clock=lambda: 0)
    clock.now += INVITATION_SECONDS
    with pytest.raises(NotInvitedError):
        join(set_back, other)


def test_a_key_does_not_look_like_an_option(members, monkeypatch):
    monkeypatch.setattr("secrets.token_bytes", lambda n: b"\xfb" * n)
    assert members.add(Role.CLIENT, "laptop")[1][0] != "-"


def test_nobody_joins_as_the_owner_of_a_key(members, tmp_path):
    (tmp_path / "keys").write_text("client alice the-key\n")
    (owner,) = [key.principal for key in named_keys(tmp_path / "keys")]
    member, _ = join(members, members.invite(Role.CLIENT), "alice")
    assert member.principal != owner
    assert str(member.principal) != str(owner)


def test_who_guesses_keeps_nobody_out(members):
    """Behind a router or in a container, other machines may have the same address."""
    secret = members.invite(Role.BACK)
    for _ in range(200):
        with pytest.raises(NotInvitedError):
            join(members, b"guess")
    assert join(members, secret)
    assert members.n_refused == 200


def test_only_so_many_codes_wait_the_oldest_is_forgotten(members):
    first, *_ = [members.invite(Role.BACK) for _ in range(65)]
    assert members.n_invited == 64
    with pytest.raises(NotInvitedError):
        join(members, first)


@pytest.mark.parametrize(
    ("given", "named"),
    [("laptop", "laptop-2"), ("a b\n\x1b[31m", "a-b---31m"), ("", "machine"), ("x" * 99, "x" * 48)],
)
def test_names_are_plain_and_each_is_one_machines(members, given, named):
    join(members, members.invite(Role.BACK))
    member, _ = join(members, members.invite(Role.BACK), given)
    assert member.name == named


def test_a_revoked_member_is_nobody_and_its_name_is_free(members):
    member, key = join(members, members.invite(Role.BACK))
    assert members.remove("laptop") == member
    assert members.identify(key) is None
    assert members.remove("laptop") is None
    assert join(members, members.invite(Role.BACK))[0].name == "laptop"


def test_members_of_an_earlier_start_are_known(members, clock):
    member, key = join(members, members.invite(Role.BACK))
    again = Members([member], clock=clock, wall_clock=clock)
    assert again.identify(key) == member.principal
    another, _ = join(again, again.invite(Role.BACK), "desk")
    assert another.number != member.number
