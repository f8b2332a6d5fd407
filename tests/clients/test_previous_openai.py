"""The previous major version of the `openai` package, next to the installed version."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lead.chat_format.template import ChatTemplate
from tests.lead.http.routes.test_chat_tools import CALL, HERMES

pytestmark = pytest.mark.downloads

PACKAGES = ("openai==2.54.0", "distro==1.9.0")  # all else that it needs is installed
SCRIPT = Path(__file__).parent / "previous_openai.py"


@pytest.fixture(scope="session")
def previous_openai():
    """A folder with the package. It is in the virtual environment, so that it is installed once."""
    folder = Path(sys.prefix) / "clients" / PACKAGES[0]
    if not (folder / "openai").is_dir():
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder))
        subprocess.run((*pip, *PACKAGES), check=True)
    return folder


async def test_the_previous_major_gets_what_the_current_one_gets(lead, url, previous_openai):
    lead.use(template=ChatTemplate(HERMES, "", ""))
    lead.will_say(CALL)
    client = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SCRIPT),
        url,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(previous_openai)},
    )
    output, _ = await client.communicate()
    arguments = '{"a": 1}'
    said = [json.loads(line) for line in output.decode().splitlines()]
    assert said == ["2", arguments, arguments, CALL, CALL, CALL, CALL, "temperature"]
