"""Requests to save and restore a slot, and the response to each answer of the engine."""

import pytest

from lead.disk_cache.act_on_slot import ActOnSlot, SlotActed
from lead.settings.keys import ANYONE
from shared.errors import RequestError, UnavailableError


@pytest.fixture
def folder(lead, tmp_path):
    lead.use(slot_save_path=tmp_path)
    return tmp_path


async def act(client, action, slot=0, **body):
    return await client.post(f"/slots/{slot}", params={"action": action}, json=body)


@pytest.mark.parametrize(
    ("action", "names", "keep_for"),
    [("save", ("n_saved", "n_written"), None), ("restore", ("n_restored", "n_read"), ANYONE.id)],
)
async def test_a_slot_is_saved_and_restored_as_llama_server_does(  # noqa: PLR0917 - a table's columns
    lead, client, folder, action, names, keep_for
):
    lead.engine.replies[ActOnSlot] = SlotActed(n_tokens=12, n_bytes=345)
    answer = (await act(client, action, slot=2, filename="a.bin")).json()
    assert answer.pop("timings").keys() == {f"{action}_ms"}
    assert answer == {"id_slot": 2, "filename": "a.bin"} | dict(zip(names, (12, 345), strict=True))
    (command,) = lead.engine.asked
    assert (command.action, command.slot, command.path) == (action, 2, folder / "a.bin")
    assert command.keep_for == keep_for


async def test_where_requests_are_private_a_restored_text_is_too(lead, client, folder):
    security = lead.app.state.services.settings.security.model_copy(update={"private_by_default": True})
    lead.use(slot_save_path=folder, security=security)
    await act(client, "restore", filename="a.bin")
    assert lead.engine.asked[0].keep_for is None


@pytest.mark.usefixtures("folder")
async def test_a_slot_is_erased_without_a_body(lead, client):
    lead.engine.replies[ActOnSlot] = SlotActed(n_tokens=12)
    answer = await client.post("/slots/1?action=erase")
    assert answer.json() == {"id_slot": 1, "n_erased": 12}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../a", "a/b", "/etc/passwd", "a\\b", "C:a", " a", "a ", "a.", "a..b"),
        *("a\x00", "a\n", "a\x85", "a?", "a*", "\uff0e", "a\u2215b", "\ufeffa", "a" * 256, "é" * 128),
    ],
)
@pytest.mark.parametrize("action", ["save", "restore"])
async def test_a_name_that_leads_elsewhere_is_refused(lead, client, name, action):
    response = await act(client, action, filename=name)
    assert (response.status_code, response.json()["error"]["message"]) == (400, "Invalid filename")
    assert lead.engine.asked == []


@pytest.mark.parametrize("name", ["a", "a.bin", ".a", "é" * 127, "a" * 255, "my talk"])
async def test_other_names_are_taken(lead, client, folder, name):
    assert (await act(client, "save", filename=name)).status_code == 200
    assert lead.engine.asked[0].path == folder / name


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("slot", "action", "message"),
    [
        ("x", "save", "Invalid slot ID"),
        ("-1", "erase", "Invalid slot ID"),
        ("4", "erase", "Invalid slot ID"),
        ("9" * 5000, "erase", "Invalid slot ID"),
        ("0", "", "Invalid action"),
        ("0", "copy", "Invalid action"),
        ("0", "save", "Invalid filename"),
    ],
)
async def test_a_wrong_request_is_400(lead, client, slot, action, message):
    response = await act(client, action, slot)
    assert (response.status_code, response.json()["error"]["message"]) == (400, message)
    assert lead.engine.asked == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("error", "status"), [(RequestError("there is no a"), 400), (UnavailableError("slot 0 is busy"), 503)]
)
async def test_what_the_engine_refuses_says_why(lead, client, error, status):
    lead.engine.replies[ActOnSlot] = error
    response = await act(client, "restore", filename="a")
    assert (response.status_code, response.json()["error"]["message"]) == (status, str(error))


async def test_without_a_folder_it_is_501(client):
    response = await act(client, "save", filename="a")
    assert response.status_code == 501
    assert "--slot-save-path" in response.json()["error"]["message"]
