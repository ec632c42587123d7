"""Standard output and standard error may be closed, full or left by their reader: no traceback, nothing is lost."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tiny_runs import OVERRIDES

from foster.cli import main, one_line
from foster.experiment.folder import RunFolder
from foster.reports.progress import progress_for
from foster.system.output import complain, report, show
from foster.system.signals import Stopped

FULL = Path("/dev/full")
needs_full_device = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")


def shell(command: str, folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A command line of bash, in which `foster` is the command; PIPESTATUS is that of all parts of a pipe."""
    script = f'foster() {{ "{sys.executable}" -m foster "$@"; }}; {command}'
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    everything = {**kept, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=everything, capture_output=True, text=True, timeout=120, check=False
    )


@needs_full_device
@pytest.mark.parametrize("command", ["presets", "--help", "run --help", "presets --show digits"])
@pytest.mark.parametrize("buffering", ["", "1"])
def test_output_onto_a_full_disk_is_one_line_and_exit_code_2(command: str, buffering: str, tmp_path: Path) -> None:
    done = shell(f"foster {command} > /dev/full", tmp_path, PYTHONUNBUFFERED=buffering)
    assert done.returncode == 2
    assert done.stderr == "foster: cannot read or write the output: No space left on device\n"


@pytest.mark.parametrize("command", ["presets --show digits", "--help", "methods"])
def test_a_reader_that_leaves_is_no_error(command: str, tmp_path: Path) -> None:
    """It is gone before anything is written."""
    done = shell(f"(sleep 0.3; foster {command}) | exec true; exit ${{PIPESTATUS[0]}}", tmp_path)
    assert done.stderr == ""
    assert done.returncode == 141


def test_a_run_with_closed_streams_is_no_error(tmp_path: Path) -> None:
    done = shell(f"foster run digits {' '.join(OVERRIDES)} method=finetune --out run <&- >&- 2>&-", tmp_path)
    assert done.returncode == 0
    assert RunFolder(tmp_path / "run").is_finished


def test_an_error_that_cannot_be_told_is_not_told_in_the_place_of_a_result(tmp_path: Path) -> None:
    refused = shell("foster run nothing 2>&-", tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")


CLOSED = """
import os, sys
from foster import cli
def answer():
    descriptor = os.open("answer", os.O_WRONLY | os.O_CREAT)
    print("into nowhere")
    print("into nowhere", file=sys.stderr)
    os.write(descriptor, f"{descriptor} {sys.stdin is None} {sys.stdout is None} {sys.stderr is None}".encode())
cli.app = answer
cli.main()
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_no_file_takes_the_place_of_a_closed_stream(closed: str, tmp_path: Path) -> None:
    """A library that writes to standard error would write into it."""
    (tmp_path / "closed.py").write_text(CLOSED, encoding="utf-8")
    done = shell(f'"{sys.executable}" closed.py {closed}', tmp_path)
    assert done.returncode == 0, done.stderr
    descriptor, *are_missing = (tmp_path / "answer").read_text(encoding="utf-8").split()
    assert int(descriptor) > 2
    assert are_missing == ["False"] * 3


@contextmanager
def full_output() -> Iterator[None]:
    """Standard output of this process on a full disk."""
    before = sys.stdout
    sys.stdout = FULL.open("w", encoding="utf-8")
    try:
        yield
    finally:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        sys.stdout.close()
        sys.stdout = before


@pytest.fixture
def onto_full_disk(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, list[str]]]:
    """`foster`, in this process: its exit code and the lines that it complains."""

    def run(*given: str) -> tuple[int, list[str]]:
        monkeypatch.setattr("sys.argv", ["foster", *given])
        with full_output(), pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err.splitlines()

    return run


@needs_full_device
def test_a_run_that_is_finished_has_not_failed_because_its_table_cannot_be_printed(
    tmp_path: Path, onto_full_disk: Callable[..., tuple[int, list[str]]]
) -> None:
    path = tmp_path / "run"
    said = f"foster: cannot write to standard output (No space left on device); all is done and saved in '{path}'"
    given = ["run", "digits", *OVERRIDES, "method=finetune", "--out", str(path), "--quiet"]
    assert onto_full_disk(*given) == (0, [said])
    assert RunFolder(path).is_finished
    finished = f"foster: '{path}' is finished; nothing is left to do"
    assert onto_full_disk("resume", str(path)) == (0, [finished, said])


@needs_full_device
@pytest.mark.parametrize("style", ["--json", "--csv", "--top=2"])
def test_predictions_that_cannot_be_printed_are_an_error_in_one_line(
    style: str, small_bundle: Path, onto_full_disk: Callable[..., tuple[int, list[str]]]
) -> None:
    found = onto_full_disk("predict", str(small_bundle), str(small_bundle / "exemplars"), style, "--device=cpu")
    assert found == (2, ["foster: cannot read or write the output: No space left on device"])


@needs_full_device
def test_a_learn_whose_report_cannot_be_printed_has_written_and_promoted_its_bundle(
    small_bundle: Path, tmp_path: Path, onto_full_disk: Callable[..., tuple[int, list[str]]]
) -> None:
    photos, bundle = str(small_bundle / "exemplars"), tmp_path / "v1"
    settings = ["backbone=resnet8", "epochs_scale=0.006", "device=cpu", "validation_share=0"]
    code, lines = onto_full_disk("learn", photos, "--bundle", str(bundle), "--promote", "--quiet", *settings)
    assert (code, len(lines)) == (0, 1)
    assert lines[0].endswith(f"all is done and saved in '{bundle}'")
    assert (tmp_path / "current").resolve() == bundle


def test_progress_without_standard_error_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    with progress_for() as listener:
        assert listener is not None


def test_a_complaint_is_one_printable_line_on_standard_error_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    complain("a bundle\nof '\x1b[31m' and '\ud800'")
    assert capsys.readouterr() == ("", "foster: a bundle of '\ufffd[31m' and '\ufffd'\n")
    monkeypatch.setattr("sys.stderr", None)
    complain("nobody hears this")
    assert capsys.readouterr().out == ""


def test_what_can_be_printed_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report("a line", "and [another]", place=tmp_path)
    show("the last")
    assert capsys.readouterr() == ("a line\nand [another]\nthe last\n", "")


@pytest.mark.parametrize(
    ("error", "exit_code", "said"),
    [
        (KeyboardInterrupt(), 130, "foster: interrupted\n"),
        (BrokenPipeError(), 141, ""),
        (Stopped(signal.SIGHUP), 129, "foster: stopped by SIGHUP\n"),
        (PermissionError(13, "Permission denied", "/x"), 2, "foster: cannot read or write '/x': Permission denied\n"),
    ],
)
def test_every_end_has_its_code_and_its_word(
    error: BaseException, exit_code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, one_line():
        raise error
    assert ended.value.code == exit_code
    assert capsys.readouterr() == ("", said)


SLOW_READER = """
import sys, time
import foster.bundle.manifest
def slow(folder):
    print("reading", file=sys.stderr, flush=True)
    time.sleep(60)
foster.bundle.manifest.read_manifest = slow
sys.argv = ["foster", "info", "bundle"]
from foster.cli import main
main()
"""


def test_ctrl_c_says_so_where_nothing_is_trained() -> None:
    with subprocess.Popen([sys.executable, "-c", SLOW_READER], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "reading\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[1] == "foster: interrupted\n"
    assert process.returncode == 130
