"""From an invitation to the requests of a member, over real connections."""

import asyncio
import base64
import contextlib
import dataclasses
import socket
import ssl

import httpx
import openai
import pytest

from lead.pairing.certificate import Authority
from lead.pairing.pairing_server import PairingServer
from lead.server.listening import listen
from shared.errors import ConfigError
from shared.pairing import joined_lead
from shared.pairing.invitation import Invitation
from shared.pairing.joined_lead import JoinedLead
from shared.tls import pinning
from tests.lead.http.event_streams import client_of
from tests.lead.serving import ASK, hello


@pytest.fixture
async def pairing(lead, serve, tmp_path):
    """The pairing server of a lead that serves."""
    with contextlib.closing(listen("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    served = serve()
    pairing = PairingServer(
        tmp_path / "lead",
        port,
        served.server,
        back_command="back --model MODEL",
        listen=lambda _, port: listen("::", port),
        own_addresses=lambda: ["127.0.0.1"],
    )
    await served.server.accepting.wait()
    lead.app.state.pairing = pairing
    return pairing


@pytest.fixture
async def admin(lead, pairing):  # noqa: ARG001 - the lead's
    async with client_of(lead.app) as client:
        yield client


@pytest.fixture(autouse=True)
def own_data(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


async def invited(admin, role="client", **fields):
    body = {"open": True, "role": role} | fields
    return (await admin.post("/v1/invitations", json=body)).json()["code"]


async def join(code, role="client", name="laptop"):
    return await asyncio.to_thread(JoinedLead.find, role, name, code)


def trusted(pairing):
    """The TLS context of a browser on a system that trusts the CA."""
    return ssl.create_default_context(cadata=pairing.certificate)


def member(joined):
    key = joined.key.get_secret_value()
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=joined.url, headers=headers, verify=pinning(joined.certificate))


async def post_join(pairing, invitation, **fields):
    """Send a join request as another program would; return the answer."""
    secret = base64.urlsafe_b64encode(invitation.secret).decode()
    url = f"https://127.0.0.1:{pairing.port}/v1/join"
    async with httpx.AsyncClient(verify=False, trust_env=False) as client:  # noqa: S501 - of this test
        return (await client.post(url, json={"secret": secret, "name": "guest"} | fields)).json()


async def test_a_machine_joins_and_asks(lead, admin):
    lead.will_say("Hello")
    joined = await join(await invited(admin))
    async with member(joined) as client:
        answer = (await client.post("/v1/chat/completions", json=ASK)).json()
    assert answer["choices"][0]["message"]["content"] == "Hello"


async def test_a_code_that_was_used_here_goes_on_with_the_membership(admin, pairing):
    """A service that is started again has the same code in its environment."""
    code = await invited(admin)
    joined = await join(code)
    assert await join(code) == joined
    assert (len(list(pairing.members)), pairing.members.n_refused) == (1, 0)


async def test_a_code_of_another_lead_replaces_the_membership_and_says_so(admin, pairing, tmp_path, caplog):
    caplog.set_level("INFO")
    former = await join(await invited(admin))
    former.certificate.write_text(Authority(tmp_path / "another", ["127.0.0.1"]).certificate)
    await join(await invited(admin))
    assert f"forgot the joined lead at {former.url[8:]}" in caplog.messages
    assert [each.name for each in pairing.members] == ["laptop", "laptop-2"]  # its key stays at its lead


async def test_another_code_of_the_same_lead_forgets_nothing(admin, pairing, caplog):
    """The former key stays valid: another back of this machine may use it."""
    caplog.set_level("INFO")
    async with member(await join(await invited(admin))) as before:
        await join(await invited(admin))
        assert (await before.get("/v1/models")).status_code == 200
    assert not any("forgot" in each for each in caplog.messages)
    assert [each.name for each in pairing.members] == ["laptop", "laptop-2"]


async def test_the_name_of_a_back_begins_with_the_name_by_which_it_can_be_revoked(lead, admin, pairing):
    """Two connections ask for the name, and one asks for the name of another member."""
    await join(await invited(admin))
    joined = await join(await invited(admin, "back"), "back")
    async with member(joined) as back:
        for name in ("laptop-2", "laptop-2", "laptop"):
            body = {"messages": [hello(lead, name=name).model_dump()]}
            assert (await back.post("/v1/speculation", json=body)).status_code == 200
    assert [each.name for each in pairing.members] == ["laptop", "laptop-2"]
    assert [each.name for each in lead.backs] == ["laptop-2", "laptop-2:2", "laptop-2:laptop"]


@pytest.mark.usefixtures("pairing")
async def test_a_code_names_no_page_that_is_not_served(lead, admin, monkeypatch):
    monkeypatch.setattr(lead.app.state, "with_page", False)
    made = (await admin.post("/v1/invitations", json={"open": True, "role": "client"})).json()
    assert "page" not in made


async def test_a_client_may_open_the_page_with_its_code(admin, pairing):
    made = (await admin.post("/v1/invitations", json={"open": True, "role": "client"})).json()
    page, secret = made["page"].split("#join=")
    assert page == f"https://127.0.0.1:{pairing.port}/"
    assert set("".join(made["qr"])) == {"0", "1"}
    async with httpx.AsyncClient(verify=trusted(pairing)) as browser:
        assert (await browser.get(page)).status_code == 200
        joined = await browser.post(page + "v1/join", json={"secret": secret, "name": "phone"})
        headers = {"Authorization": f"Bearer {joined.json()['key']}"}
        assert (await browser.get(page + "v1/models", headers=headers)).status_code == 200
        again = await browser.post(page + "v1/join", json={"secret": secret, "name": "phone"})
    assert again.status_code == 403


async def test_a_program_that_trusts_the_ca_gets_in_with_its_key(lead, admin, pairing):
    made = (await admin.post("/v1/members", json={"open": True, "name": "app"})).json()
    lead.will_say("Hello")
    client = openai.AsyncOpenAI(
        base_url=f"https://{made['addresses'][0]}/v1",
        api_key=made["key"],
        http_client=httpx.AsyncClient(verify=ssl.create_default_context(cadata=made["certificate"])),
    )
    answer = await client.chat.completions.create(**ASK | {"model": "any"})
    assert answer.choices[0].message.content == "Hello"
    await client.close()
    assert [(each.name, each.role.value) for each in pairing.members] == [("app", "client")]


async def test_who_invites_is_told_that_the_ca_has_another_certificate(admin):
    async def changes(*addresses):
        body = {"open": True, "name": "app", "addresses": addresses}
        return (await admin.post("/v1/members", json=body)).json()["certificate_changed"]

    assert [await changes("localhost"), await changes("a.example"), await changes("a.example")] == [
        *(False, True, False)
    ]


async def test_everybody_may_fetch_the_certificate_of_an_open_lead(admin, pairing):
    assert (await admin.get("/ca.crt")).status_code == 400
    await invited(admin)
    response = await admin.get("/ca.crt")
    assert (response.text, response.headers["content-type"]) == (
        pairing.certificate,
        "application/x-x509-ca-cert",
    )


@pytest.mark.parametrize("address", ["::1", "[::1]", "localhost"])
async def test_a_machine_comes_in_by_ipv6_and_by_names(admin, address):
    joined = await join(await invited(admin, addresses=[address]))
    async with member(joined) as client:
        assert (await client.get("/v1/models")).status_code == 200


@pytest.mark.parametrize("address", ["a b", "desk:99999", "[desk", "http://desk"])
async def test_what_is_no_address_is_refused(admin, address):
    body = {"open": True, "role": "back", "addresses": [address]}
    assert (await admin.post("/v1/invitations", json=body)).status_code == 400


async def test_a_lead_may_have_many_addresses(admin, pairing, monkeypatch):
    """A lead has the addresses of containers and tunnels, and addresses from its options."""
    pairing.add_addresses([f"{i}.example" for i in range(8)])
    code = await invited(admin)
    monkeypatch.setattr(pairing, "_own_addresses", lambda: ["127.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3"])
    assert len(pairing.all_addresses()) == 13
    assert (await join(code)).url == f"https://127.0.0.1:{pairing.port}"


@pytest.mark.parametrize(("role", "command"), [("back", "back --model MODEL"), ("client", "chat")])
async def test_a_code_comes_with_its_command(admin, role, command):
    made = (await admin.post("/v1/invitations", json={"open": True, "role": role})).json()
    assert made["command"] == f"{command} --join {made['code']}"


async def test_it_is_remembered(admin):
    joined = await join(await invited(admin))
    assert await join(None) == joined
    assert await join(None, role="back") is None
    assert await join("forget") is None
    assert await join(None) is None


@pytest.mark.parametrize(
    ("body", "said"),
    [({"role": "back"}, "--open"), ({"open": True}, "role"), ({"open": True, "role": "admin"}, "role")],
)
async def test_whoever_makes_a_code_opens_the_door_and_says_what_for(admin, body, said):
    response = await admin.post("/v1/invitations", json=body)
    assert response.status_code == 400
    assert said in response.json()["error"]["message"]


async def test_a_code_cannot_be_used_at_another_port(admin):
    await invited(admin)
    response = await admin.post("/v1/join", json={"secret": "AAAA", "name": "x"})
    assert response.status_code == 400


@pytest.mark.parametrize(
    ("made_for", "used_as", "said"),
    [("client", "back", "is for chat"), ("back", "client", "is for a back")],
)
async def test_a_code_of_another_role_is_refused_and_can_still_be_used(
    admin, pairing, made_for, used_as, said
):
    code = await invited(admin, made_for)
    with pytest.raises(ConfigError, match=said):
        await join(code, used_as)
    assert (pairing.members.n_invited, pairing.members.n_refused) == (1, 0)
    assert await join(code, made_for)


async def test_who_joins_does_not_choose_its_role(admin, pairing):
    guest = Invitation.parse(await invited(admin))
    answer = await post_join(pairing, guest, role="back")
    assert (answer["role"], [each.role.value for each in pairing.members]) == ("client", ["client"])
    # Whoever writes another role into the code gets what the lead has made it for.
    forged = dataclasses.replace(Invitation.parse(await invited(admin)), role="back")
    joined = await join(forged.code(), "back")
    async with member(joined) as client:
        assert (await client.post("/v1/speculation", json={"messages": []})).status_code == 403


async def test_only_a_small_body_of_who_has_no_key_is_read(admin, pairing):
    invitation = Invitation.parse(await invited(admin))
    refused = await post_join(pairing, invitation, more="x" * 4096)
    assert "more than 4096 bytes" in refused["error"]["message"]
    assert (await post_join(pairing, invitation))["role"] == "client"


async def test_the_secret_is_not_sent_to_another_certificate(admin, pairing, monkeypatch):
    invitation = Invitation.parse(await invited(admin))
    posted = []
    monkeypatch.setattr(httpx, "post", lambda *_, **__: posted.append(1))
    impostor = dataclasses.replace(invitation, fingerprint=b"x" * 16)
    with pytest.raises(ConfigError, match="is not the lead that made this code"):
        await join(impostor.code())
    assert posted == []
    assert pairing.members.n_invited == 1


@pytest.mark.parametrize("answer", [[], {}, {"name": "laptop"}, {"key": 1, "name": "laptop"}])
async def test_an_odd_answer_is_a_sentence(admin, monkeypatch, answer):
    code = await invited(admin)
    monkeypatch.setattr(httpx, "post", lambda *_, **__: httpx.Response(200, json=answer))
    with pytest.raises(ConfigError, match="does not answer like a lead"):
        await join(code)


async def test_an_address_where_nobody_is_is_passed_over(admin):
    with contextlib.closing(listen("127.0.0.1", 0)) as free:
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    invitation = Invitation.parse(await invited(admin))
    elsewhere = dataclasses.replace(invitation, addresses=(nobody, *invitation.addresses))
    assert (await join(elsewhere.code())).url == f"https://{invitation.addresses[0]}"
    another = Invitation.parse(await invited(admin))
    with pytest.raises(ConfigError, match=f"no lead answers at {nobody}"):
        await join(dataclasses.replace(another, addresses=(nobody,)).code())


async def test_a_machine_without_a_key_may_do_nothing_there(admin):
    joined = await join(await invited(admin))
    async with httpx.AsyncClient(base_url=joined.url, verify=pinning(joined.certificate)) as client:
        assert (await client.get("/v1/models")).status_code == 401
        assert (await client.post("/v1/invitations", json={})).status_code == 401
        assert (await client.get("/health")).status_code == 200


async def test_who_tries_keys_keeps_no_member_out(admin):
    """Behind one router, or in one network of IPv6, all machines share an address."""
    joined = await join(await invited(admin))
    url, tls = joined.url, pinning(joined.certificate)
    async with httpx.AsyncClient(base_url=url, verify=tls, trust_env=False) as client:
        for i in range(30):
            await client.get("/v1/models", headers={"Authorization": f"Bearer {i}"})
    async with member(joined) as client:
        assert (await client.get("/v1/models")).status_code == 200


async def test_a_member_may_call_the_lead_by_any_name(admin):
    async with member(await join(await invited(admin))) as client:
        assert (await client.get("/v1/models", headers={"Host": "desk.tail.net"})).status_code == 200


async def test_a_revoked_member_is_cut_off_while_it_reads(lead, admin):
    lead.will_say("one two")
    lead.engine.pause_after = 1
    joined = await join(await invited(admin))
    async with member(joined) as client:
        async with client.stream("POST", "/v1/chat/completions", json=ASK | {"stream": True}) as response:
            lines = response.aiter_lines()
            await anext(lines)
            assert (await admin.delete("/v1/members", params={"name": "laptop"})).status_code == 200
            with pytest.raises(httpx.TransportError):
                async for _ in lines:
                    pass
        assert (await client.get("/v1/models")).status_code == 401


async def test_who_has_joined_is_listed(admin, pairing):
    code = await invited(admin)
    await join(code)
    await post_join(pairing, Invitation.parse(code))  # by another machine
    await invited(admin)
    found = (await admin.get("/v1/members")).json()
    assert [(each["name"], each["role"]) for each in found["members"]] == [("laptop", "client")]
    assert (found["open"], found["invited"], found["refused"]) == (True, 1, 1)
    assert found["addresses"] == [f"127.0.0.1:{pairing.port}"]


async def test_nobody_comes_in_after_the_door_is_closed(admin, pairing):
    joined = await join(await invited(admin))
    await admin.delete("/v1/invitations")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", pairing.port), 5).close()
    await invited(admin)
    async with member(joined) as client:
        assert (await client.get("/v1/models")).status_code == 200


async def test_an_unknown_member_cannot_be_revoked(admin):
    assert (await admin.delete("/v1/members", params={"name": "nobody"})).status_code == 400


async def test_a_lead_that_keeps_no_members_says_so(lead):
    async with client_of(lead.app) as client:
        assert (await client.get("/v1/members")).status_code == 400


@pytest.fixture
def network(pairing, monkeypatch):
    """The announcements by fingerprint. A search for a pairing server finds it there."""
    announced = {}

    @contextlib.contextmanager
    def announce(port, fingerprint):
        announced[fingerprint] = (f"127.0.0.1:{port}",)
        yield
        announced.clear()

    pairing._announce = announce
    monkeypatch.setattr(joined_lead, "find_pairing", lambda fingerprint, _: announced.get(fingerprint, ()))
    return announced


async def test_a_machine_nearby_joins_with_a_code_without_address(admin, network):
    code = await invited(admin, nearby=True)
    assert len(code) < len(await invited(admin))
    assert Invitation.parse(code).addresses == ()
    joined = await join(code)
    assert joined.url == f"https://{next(iter(network.values()))[0]}"
    assert await join(None) == joined
    await join("forget")
    with pytest.raises(ConfigError, match="the code is wrong"):
        await join(code)


async def test_who_announces_itself_as_that_lead_gets_no_secret(admin, network, pairing, monkeypatch):
    code = await invited(admin, nearby=True)
    ours = Invitation.parse(code)
    network["78" * 16] = next(iter(network.values()))  # with another certificate than it says
    posted = []
    monkeypatch.setattr(httpx, "post", lambda *_, **__: posted.append(1))
    with pytest.raises(ConfigError, match="is not the lead that made this code"):
        await join(dataclasses.replace(ours, fingerprint=b"x" * 16).code())
    assert (posted, pairing.members.n_invited) == ([], 1)


async def test_a_lead_that_is_not_announced_is_not_found(admin, network):
    code = await invited(admin, nearby=True)
    network.clear()
    with pytest.raises(ConfigError, match="not found on this network"):
        await join(code)


async def test_without_multicast_nobody_is_invited_nearby(admin, pairing):
    def cannot(*_):
        raise ConfigError("cannot announce this machine by multicast: Network is unreachable")

    pairing._announce = cannot
    response = await admin.post("/v1/invitations", json={"role": "back", "open": True, "nearby": True})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "nearby")
    assert pairing.members.n_invited == 0
