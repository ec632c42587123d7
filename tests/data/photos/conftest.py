from pathlib import Path

import pytest
from photo_folders import write_photos


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Fifteen photos of three classes; the last one of the first class is broken."""
    return write_photos(tmp_path / "photos", 3, 5, broken=1)
