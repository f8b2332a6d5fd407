"""The entry point of each program: prepares the process before its modules are imported, which takes a
second.
"""

import os

from shared.search_paths import leave_working_directory


def run(name: str, *, is_interrupted: bool = False) -> None:
    """Import a module and call its `main`.

    is_interrupted: Ctrl-C raises KeyboardInterrupt in `main`.
    """
    leave_working_directory()
    from shared import program_start  # noqa: PLC0415 - what these import may be there, too
    from shared.exits import quiet_interrupts  # noqa: PLC0415

    program_start.open_closed_streams()
    program_start.ensure_home()
    # There are none of ours, and each of the processes would look for them among all installed packages.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    with quiet_interrupts():
        if not is_interrupted:
            program_start.run_program(name)
            return
        program = program_start.import_program(name)
    program.main()
