import contextlib

import pytest
from fastapi import FastAPI

from lead.pairing import companions as module
from lead.server.listening import Address, listen
from lead.server.site import Site
from lead.settings.keys import Role
from lead.settings.lead_settings import LeadSettings
from tests.certificates import make_certificate


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_lead_is_announced_with_its_scheme_until_it_ends(monkeypatch, tmp_path, scheme):
    heard = []

    @contextlib.contextmanager
    def announced(*arguments):
        heard.append(arguments)
        yield
        heard.append("gone")

    monkeypatch.setattr(module, "announced", announced)
    tls = make_certificate(tmp_path, "gpu-box").options if scheme == "https" else {}
    settings = LeadSettings.from_options(host="0.0.0.0", port=0, insecure=True, announce=True, **tls)
    with contextlib.closing(listen("127.0.0.1", 0)) as listener:
        found = module.companions(Site(FastAPI(), None, settings, Address(listener), "70B"))
        for each in found:
            await each.start()
        assert heard[0][2:] == ("70B", scheme)
        for each in found:
            await each.end()
    assert heard[1:] == ["gone"]


@pytest.mark.parametrize(("role", "expected"), [(Role.BACK, True), (Role.CLIENT, False)])
def test_the_lead_learns_whether_a_back_has_joined(monkeypatch, tmp_path, role, expected):
    monkeypatch.setattr(module, "user_data_path", lambda _: tmp_path)
    with contextlib.closing(listen("127.0.0.1", 0)) as listener:
        site = Site(FastAPI(), None, LeadSettings(), Address(listener), "70B")
        module.companions(site)
        assert not site.app.state.has_joined_backs()
        site.app.state.pairing.members.add(role, "desk")
        assert site.app.state.has_joined_backs() is expected
