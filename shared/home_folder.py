"""The user's home folder, which not everybody has: in a container a user may be just a number.

Imports almost nothing, because it is used before the imports that take a second.
"""

import os
from pathlib import Path


def ensure_home() -> None:
    """Without $HOME and without an entry of the user in /etc/passwd, the root is home, as in containers.

    Nothing can be stored there, which the programs do without; that there is no name for it they cannot.
    """
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"
