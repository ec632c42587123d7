"""Commands that wait to be stopped once they have come so far, so that no test can stop them too late."""

import os
from pathlib import Path

SITE = Path(__file__).parent / "holding"


def held(file: Path, text: str) -> dict[str, str]:
    """The environment in which training waits for a stop after the first step at which the file says the text."""
    path = os.pathsep.join([str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, "HELD_FILE": str(file), "HELD_TEXT": text}
