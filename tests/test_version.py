"""The version is that of the package, wherever it is asked for."""

import re

import foster
from foster.version import __version__


def test_the_package_tells_its_version() -> None:
    assert foster.__version__ == __version__
    assert re.fullmatch(r"\d+(\.\d+)*.*|0\+unknown", __version__)
