"""The pages and the notebook in docs/ as they stand: what they show works."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, kind: str) -> list[str]:
    """The code of a page, block by block."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def python(code: str, folder: Path) -> str:
    """What a script prints that is started in `folder`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_your_own_method_is_thirty_lines_and_works_as_the_page_shows_it(tmp_path: Path) -> None:
    method, use = blocks("own-method.md", "python")
    told = [line for line in method.splitlines() if line.strip() and not line.startswith("from ")]
    assert len(told) <= 30
    (tmp_path / "my_lab.py").write_text(method)
    (commands,) = blocks("own-method.md", "bash")
    lines = [line for line in commands.splitlines() if not re.match(r"foster (sweep|learn) ", line)]
    assert len(lines) == 3
    # In one process, as torch takes seconds to start.
    calls = "".join(f"\nfor line in [{shlex.split(line)[1:]!r}]: call(line)" for line in lines)
    out = python(f"{use}\nfrom typer.testing import CliRunner\nfrom foster.cli import app\n{CALL}{calls}", tmp_path)
    assert "<Plan digits-b0-inc2, balanced" in out
    assert "<Result digits-b0-inc2, balanced, seed 1993: 5 tasks" in out
    assert "20 tune" not in out
    assert "2 tune" in out
    assert "runs/balanced" in out


CALL = """
def call(line):
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 0, (line, done.output)
    print(done.output)
"""


def test_the_notebook_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(DOCS / "notebook.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "committed without outputs"
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    kinds = {kind for output in shown for kind in output.get("data", ())}
    assert "image/png" in kinds, "a figure is shown"
    texts = "".join(output.get("data", {}).get("text/plain", "") for output in shown)
    assert "<Plan digits-b0-inc5, foster" in texts
    for method in ("finetune", "replay", "foster", "balanced"):
        assert re.search(rf"^{method} .*\d\d\.\d", texts, re.MULTILINE), f"{method} stands in the table"
    assert not list(tmp_path.iterdir()), "nothing is written"
