"""The process of one model: a lead that gets its options, address and key from the router.

It reads them as one line of JSON on standard input, where other users of this machine cannot see them.
"""

import json
import socket
import sys

from lead.cli import run, serving
from lead.router.routed import RoutedBy
from lead.settings.lead_settings import LeadSettings
from shared.logs import configure_logging


def main() -> None:
    """Wait for the line on standard input, then serve until a signal arrives.

    The exit status is as for `lead.cli.run`. Input that ends without a line ends the process.
    """
    # What takes long to import, while there may be no model to serve yet.
    import uvloop  # noqa: F401, PLC0415

    import lead.server.server  # noqa: F401, PLC0415

    line = sys.stdin.buffer.readline()
    if not line:  # the router has ended
        return
    order = json.loads(line)
    settings = LeadSettings.from_options(**order["options"])
    configure_logging(settings.log_level, as_json=settings.log_json)
    routed = RoutedBy(socket.socket(fileno=order["listener"]), order["secret"])
    run(settings, lambda settings: serving(settings, routed))


if __name__ == "__main__":
    main()
