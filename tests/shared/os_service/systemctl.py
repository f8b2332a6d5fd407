"""A stand-in for systemctl. It records the units that are enabled and active, and refuses as systemctl does.

Used as the program `systemctl`, with a folder of units in FAKE_UNITS. FAKE_TROUBLE is a command at which it
fails, or `bus`, `hang` or `dead` for all commands.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path


def main(words):
    """Exits with systemctl's status."""
    file = Path(os.environ["FAKE_STATE"])
    new = {"known": {}, "enabled": [], "active": [], "calls": []}
    state = json.loads(file.read_text()) if file.exists() else new
    state["calls"].append(" ".join(words))
    file.write_text(json.dumps(state))
    command, *names = (word for word in words if not word.startswith("--"))
    get_into_trouble(command)
    match command:
        case "daemon-reload":
            units = Path(os.environ["FAKE_UNITS"]).glob("llama-duo-*")
            state["known"] = {path.name: path.read_text() for path in units}
        case "enable" | "disable":
            assert "--now" in words
            if missing := set(names) - state["known"].keys():
                fail(f"Failed to {command} unit: Unit file {missing.pop()} does not exist.")
            for kind in ("enabled", "active"):
                others = {*state[kind]} - {*names}
                state[kind] = sorted(others | {*names} if command == "enable" else others)
        case "clean":
            assert names[0] not in state["active"]
        case "status":
            if names[0] not in state["known"]:
                fail(f"Unit {names[0]} could not be found.", 4)
            sys.exit(0 if names[0] in state["active"] else 3)
        case "reset-failed":
            fail(f"Failed to reset failed state of unit {names[0]}: Unit {names[0]} not loaded.")
        case _:
            fail(f"Unknown command verb {command}.")
    file.write_text(json.dumps(state))


def get_into_trouble(command):
    match os.environ.get("FAKE_TROUBLE"):
        case "hang":
            time.sleep(60)
        case "dead":
            os.kill(os.getpid(), signal.SIGKILL)
        case "bus":
            fail("Failed to connect to bus: No medium found")
        case trouble if trouble == command:
            fail("Job failed. See journalctl for details.")


def fail(said, status=1):
    sys.stderr.write(f"{said}\n")
    sys.exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
