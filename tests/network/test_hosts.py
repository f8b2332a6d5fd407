"""Lead, backs and client on separate machines: slow, lossy, cut and translated networks."""

import re
import subprocess
import sys

import pytest

from lab.parts.processes import Program, start_back, start_lead
from tests.network.conftest import BACK_KEY, CLIENT_KEY, PORT
from tests.real import client
from tests.real.client import TIMEOUT_S, repeat_until
from tests.real.processes import BACK, LEAD

pytestmark = pytest.mark.real


@pytest.fixture
def on_client(network):
    with network.at("client"):
        yield


def ask(url):
    return client.ask(url, key=CLIENT_KEY)


def accepted(url):
    """Accepted tokens of each connected back."""
    return {back["name"]: back["n_accepted_tokens"] for back in client.backs(url, key=CLIENT_KEY)}


def ask_until_accepted(url, name):
    """Ask until tokens of this back have been accepted again; return the text of all answers."""
    before = accepted(url).get(name, 0)
    return repeat_until(lambda _: accepted(url).get(name, 0) > before, lambda: ask(url)).text


def run_doctor(network, machine, *arguments):
    command = [sys.executable, "-m", "back", "doctor", *arguments]
    with network.at(machine):
        return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.mark.usefixtures("on_client")
def test_backs_on_two_machines_draft_and_the_text_is_the_same(lead, back_on, plain):
    back_on("desk1")
    back_on("desk2")
    assert repeat_until(lambda reply: reply.n_accepted > 0, lambda: ask(lead[1])).text == plain
    assert set(accepted(lead[1])) == {"desk1", "desk2"}


@pytest.mark.usefixtures("on_client")
def test_a_back_behind_nat_drafts(lead, back_on, plain):
    back_on("home")
    assert ask_until_accepted(lead[1], "home") == plain


@pytest.mark.usefixtures("on_client")
def test_a_cut_cable_costs_no_answer_and_a_healed_one_brings_the_back_back(lead, back_on, plain, network):
    back_on("desk1")
    assert ask_until_accepted(lead[1], "desk1") == plain
    network.cut("desk1")
    try:
        assert {ask(lead[1]).text for _ in range(3)} == {plain}
    finally:
        network.heal("desk1")
    assert ask_until_accepted(lead[1], "desk1") == plain


@pytest.mark.usefixtures("on_client")
def test_a_back_comes_back_from_a_cut_longer_than_its_patience(lead, back_on, plain, network):
    program, url = lead
    back = back_on("desk1", "--ping-seconds", "0.5")
    n_said, n_told = program.n_lines(), back.n_lines()
    network.cut("desk1")
    try:
        back.wait_for("lost the connection to the lead", since=n_told)
        assert ask(url).text == plain
    finally:
        network.heal("desk1")
    # The lead may not have noticed that the old connection is gone: then the new one's name has a number.
    name = back.wait_for(r"drafting for \S+ as (\S+)", since=n_told)[1]
    assert ask_until_accepted(url, name) == plain
    program.wait_for("back desk1 .*left", since=n_said)


@pytest.mark.usefixtures("on_client")
def test_over_a_narrow_network_that_loses_packets_the_text_is_the_same(lead, back_on, plain, network):
    back_on("desk2")
    network.narrow("desk2", kilobits=500)
    network.lose("desk2", loss_percent=5)
    try:
        assert {ask(lead[1]).text for _ in range(2)} == {plain}
    finally:
        network.run("desk2", "nft delete table ip loss")
        network.run("desk2", "tc qdisc del dev eth0 root")
    assert ask_until_accepted(lead[1], "desk2") == plain


@pytest.mark.usefixtures("on_client")
def test_a_far_back_drafts_and_the_doctor_measures_its_round_trip(network, target, plain, far):
    # By --policy adaptive a busy lead may find that drafts which come so late do not pay.
    keys = ("--api-key", CLIENT_KEY, "--back-key", BACK_KEY)
    with network.at("lead"):
        address = ("--host", "0.0.0.0", "--port", str(PORT + 1))
        program, _ = start_lead("--model", str(target), *LEAD, *address, *keys, "--policy", "fixed")
    url = f"http://10.77.0.1:{PORT + 1}"
    with program:
        with network.at(far):
            back = start_back(url, "--name", far, "--key", BACK_KEY, *BACK)
        with back:
            assert ask_until_accepted(url, far) == plain
            result = run_doctor(network, far, "--lead", url, "--key", BACK_KEY, "--name", far)
    round_trip = float(re.search(r"a round trip to the lead takes ([\d.]+) ms", result.stdout)[1])
    assert round_trip >= 80


def test_a_back_finds_a_lead_that_announces_itself(lead, network):
    with network.at("desk1"):
        back = Program("back", "--discover", "--key", BACK_KEY, "--name", "finder", *BACK)
    with back:
        assert back.wait_for(r"drafting for (\S+) as finder")[1] == f"ws{lead[1][4:]}/v1/speculation"


def test_a_back_may_draft_for_all_leads_that_announce_themselves(lead, network, target):
    address = ("--host", "0.0.0.0", "--port", str(PORT), "--announce")
    with network.at("desk2"):
        other, _ = start_lead("--model", str(target), *LEAD, *address, "--back-key", BACK_KEY)
    with other:
        with network.at("desk1"):
            back = Program("back", "--discover-all", "--key", BACK_KEY, "--name", "finder", *BACK)
        with back:
            for program in (lead[0], other):
                program.wait_for("back finder.* joined")


@pytest.mark.usefixtures("lead")
def test_a_back_that_found_a_lead_needs_a_key_all_the_same(network):
    with network.at("desk1"):
        back = Program("back", "--discover", *BACK)
    with back:
        back.wait_for(r"refuses this back: Invalid API Key")
        assert back.process.wait(TIMEOUT_S) == 1


def test_the_doctor_finds_nothing_to_complain_of_from_another_machine(lead, back_on, network):
    back_on("desk1")
    result = run_doctor(network, "desk2", "--lead", lead[1], "--key", BACK_KEY)
    assert "the lead accepts this back" in result.stdout
    assert "one machine" not in result.stdout


@pytest.mark.usefixtures("lead")
def test_the_doctor_says_why_a_back_cannot_join(network):
    result = run_doctor(network, "desk2", "--lead", f"http://10.77.0.1:{PORT}", "--key", CLIENT_KEY)
    assert result.returncode == 1
    assert "this key has the role client" in result.stdout


def test_a_machine_joins_with_one_code_and_drafts(network, target, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "lead"))
    with network.at("desk2"):
        program, url = start_lead("--model", str(target), *LEAD)
        invite = [sys.executable, "-m", "lead", "invite", "--lead", url, "--open"]
    with program:
        with network.at("desk2"):
            said = subprocess.run(invite, check=True, capture_output=True, text=True).stdout
            plain = client.ask(url).text
        code = re.search(r"--join (\S+)", said)[1]
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "back"))
        for options in (("--join", code), ()):
            with network.at("desk1"):
                back = Program("back", *options, *BACK)
            with back:
                back.wait_for("drafting for wss://10.77.")
                with network.at("desk2"):
                    assert (
                        repeat_until(lambda reply: reply.n_accepted > 0, lambda: client.ask(url)).text
                        == plain
                    )
