import shutil
from pathlib import Path

import pytest

from foster.errors import DataError
from foster.reports.readme import BEGIN, END, main, results_block, with_block
from foster.reports.results import read_result

REPOSITORY = Path(__file__).parents[2]


def project(tmp_path: Path, *runs: Path) -> Path:
    """A folder with a README that has markers, and the runs in results/."""
    root = tmp_path / "project"
    (root / "results").mkdir(parents=True)
    (root / "README.md").write_text(f"# foster\n\n{BEGIN}\n{END}\n\nafter\n")
    for index, run in enumerate(runs):
        shutil.copy(run, root / "results" / f"run{index}.json")
    return root


def cells(block: str) -> list[list[str]]:
    lines = [line for line in block.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_readme_of_this_repository_is_up_to_date():
    assert main(["--check", "--root", str(REPOSITORY)]) == 0


def test_a_row_sets_our_number_beside_the_papers(write_run):
    scenario = "cifar100-b0-inc10"
    run = read_result(
        write_run("a", scenario=scenario, augmentation="auto", accuracy=(90.0, 56.6), boosted=(90.0, 58.0))
    )
    header, _, row = cells(results_block([run]))
    assert dict(zip(header, row, strict=True)) == {
        "scenario": scenario,
        "method": "foster",
        "augmentation": "auto",
        "seeds": "1993",
        "hardware": "NVIDIA H200",
        "n": "1",
        "average": "73.30",
        "paper": "72.90",
        "difference": "+0.40",
        "boosted": "74.00",
        "paper, boosted": "≈ 74.1",
        "minutes": "12.1",
    }


def test_several_seeds_share_a_row_and_a_method_without_published_number_has_dashes(write_run):
    runs = [
        read_result(write_run(f"{seed}", seed=seed, scenario="cifar100-b0-inc5", method="replay")) for seed in (2, 1)
    ]
    header, _, row = cells(results_block(runs))
    found = dict(zip(header, row, strict=True))
    assert (found["seeds"], found["n"], found["average"]) == ("1, 2", "2", "75.00 ± 0.00")
    assert {found["paper"], found["difference"], found["boosted"]} == {"–"}


def test_a_number_that_only_the_authors_repository_has_is_marked(write_run):
    block = results_block([read_result(write_run("a", scenario="cifar100-b50-inc1"))])
    assert "59.96 ¹" in block
    assert "¹ From the authors' repository" in block


def test_writing_then_checking_finds_nothing_stale(write_run, tmp_path: Path):
    root = project(tmp_path, write_run("a", scenario="cifar100-b0-inc10"))
    assert main(["--check", "--root", str(root)]) == 1
    assert main(["--root", str(root)]) == 0
    assert main(["--check", "--root", str(root)]) == 0
    text = (root / "README.md").read_text()
    assert text.startswith("# foster\n")
    assert text.endswith("\n\nafter\n")
    assert "72.90" in text


def test_a_changed_result_makes_the_readme_stale(write_run, tmp_path: Path, capsys):
    root = project(tmp_path, write_run("a", accuracy=(90.0, 60.0)))
    main(["--root", str(root)])
    shutil.copy(write_run("b", accuracy=(90.0, 61.0)), root / "results" / "run0.json")
    assert main(["--check", "--root", str(root)]) == 1
    assert "stale" in capsys.readouterr().err


def test_a_readme_without_markers_and_a_damaged_result_are_refused(write_run, tmp_path: Path, capsys):
    with pytest.raises(DataError, match="results:begin"):
        with_block("# foster\n", "table")
    root = project(tmp_path, write_run("a"))
    (root / "results" / "run0.json").write_text("{")
    assert main(["--root", str(root)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
