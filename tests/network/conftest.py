import pytest

from lab.parts.processes import start_back, start_lead
from tests.network.namespaces import Network, why_not
from tests.real.client import ask
from tests.real.processes import BACK, LEAD

PORT = 5555
CLIENT_KEY, BACK_KEY = "the-clients-key", "the-backs-key"


@pytest.fixture(scope="session")
def network():
    """Machines lead, client, desk1, desk2 and router on one switch, and home behind router."""
    if reason := why_not():
        pytest.skip(reason)
    with Network() as network:
        for machine in ("lead", "client", "desk1", "desk2", "router"):
            network.add(machine)
        network.add_behind("home", "router")
        yield network


@pytest.fixture(scope="session")
def far(network):
    """The name of a machine with a round trip of 80 ms to all others, and some loss."""
    try:
        network.add_far("far", delay_ms=40, loss_percent=1)
    except OSError as error:
        pytest.skip(f"this machine makes no TAP devices: {error}")
    return "far"


@pytest.fixture(scope="session")
def lead(network, target):
    """(lead, url) as all machines reach it. It has keys, and announces itself."""
    with network.at("lead"):
        program, _ = start_lead(
            *("--model", str(target), *LEAD),
            *("--host", "0.0.0.0", "--port", str(PORT), "--announce"),
            *("--api-key", CLIENT_KEY, "--back-key", BACK_KEY),
        )
    with program:
        yield program, f"http://10.77.0.1:{PORT}"


@pytest.fixture
def back_on(network, lead):
    """Starts a connected back on a machine. When the test ends, the lead has noticed that it is gone."""
    backs = {}

    def start(machine, *arguments):
        with network.at(machine):
            backs[machine] = start_back(lead[1], "--name", machine, "--key", BACK_KEY, *BACK, *arguments)
        return backs[machine]

    yield start
    since = lead[0].n_lines()
    for back in backs.values():
        back.stop()
    for machine in backs:
        lead[0].wait_for(rf"back {machine}(:\d+)? .*left", since=since)


@pytest.fixture(scope="session")
def plain(network, lead):
    """The lead's text without backs."""
    with network.at("client"):
        return ask(lead[1], key=CLIENT_KEY).text
