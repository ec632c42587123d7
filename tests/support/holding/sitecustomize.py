"""Python runs this at its start wherever the folder is on the PYTHONPATH, as `held` makes it be."""

import os
from pathlib import Path

from held import hold

until = os.environ["HELD_UNTIL"]
hold(Path(os.environ["HELD_FILE"]), os.environ["HELD_TEXT"], Path(until) if until else None)
