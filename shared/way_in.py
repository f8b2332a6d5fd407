"""The way into each program: what has to be right before its modules are imported, which takes a second."""

import os

from shared.search_paths import leave_working_directory


def run(name: str, *, is_interrupted: bool = False) -> None:
    """Import a module and call its `main`.

    is_interrupted: Ctrl-C raises KeyboardInterrupt there, once it is imported.
    """
    leave_working_directory()
    from shared.exits import QuietInterrupts  # noqa: PLC0415 - what these import may be there, too
    from shared.home_folder import ensure_home  # noqa: PLC0415
    from shared.imports import import_program, run_program  # noqa: PLC0415
    from shared.standard_streams import keep_from_children, open_closed_streams  # noqa: PLC0415

    open_closed_streams()
    keep_from_children()
    ensure_home()
    # There are none of ours, and each of the processes would look for them among all installed packages.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    with QuietInterrupts():
        if not is_interrupted:
            run_program(name)
            return
        program = import_program(name)
    program.main()
