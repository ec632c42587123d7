"""Reports: what they hold, and in a real browser what a reader sees, at a desk and on a phone, by day and by night."""

import base64
import io
import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import safetensors.torch
import torch
from made_once import made_once
from PIL import Image
from small_learners import digits
from typer.testing import CliRunner

import foster
from foster.cli import app
from foster.networks import build_backbone
from foster.reports.archive import accuracy_of, open_archives
from foster.reports.html import THEMED, _class_rows, _run_headlines, _run_part, command, page_of, svg, write_report
from foster.reports.mistakes import picture
from foster.reports.style import COLOURS, new_figure, styled
from foster.reports.tables import history_grid
from foster.settings.experiment import load_settings

DESK, PHONE = (1280, 900), (390, 844)

Opened = Callable[..., tuple[Any, list[str]]]
"""The page of a report at some size, and what went wrong on it, requests to anywhere else included."""


@pytest.fixture(scope="module")
def run_report(kept_runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    write = partial(write_report, kept_runs.values())
    places = (np.zeros((6, 2)), np.arange(6))  # t-SNE has tests of its own
    with mock.patch("foster.reports.features._tsne_positions", return_value=places):
        return made_once(tmp_path_factory, "run-report", lambda folder: write(folder / "runs.html")) / "runs.html"


@pytest.fixture(scope="module")
def bundle_report(bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    write = partial(write_report, [bundle])
    return made_once(tmp_path_factory, "bundle-report", lambda folder: write(folder / "bundle.html")) / "bundle.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the extra dev)")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("there is no chromium on this machine")
    options = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=options)
        yield started
        started.close()


@pytest.fixture(scope="module")
def opened(browser) -> Opened:
    """Opens each report once: a page of its own for every test takes a second and more."""
    found: dict[Path, tuple[Any, list[str]]] = {}

    def at(path: Path, size: tuple[int, int] = DESK) -> tuple[Any, list[str]]:
        if path not in found:
            found[path] = _first_opened(browser, path, size)
        page, _ = found[path]
        page.set_viewport_size({"width": size[0], "height": size[1]})
        return found[path]

    return at


def _first_opened(browser: Any, path: Path, size: tuple[int, int]) -> tuple[Any, list[str]]:
    context = browser.new_context(viewport={"width": size[0], "height": size[1]})
    page, wrong = context.new_page(), []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(("file:", "data:")) else None)
    page.goto(path.as_uri())
    return page, wrong


def brightness(page: Any, place: str, colour: str) -> int:
    """From 0 to 765."""
    found = page.evaluate(f"getComputedStyle({place}).{colour}")
    return sum(int(part) for part in re.findall(r"\d+", found)[:3])


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("name", ["run_report", "bundle_report"])
def test_every_figure_is_seen_and_nothing_goes_wrong(opened: Opened, name: str, size, request):
    page, wrong = opened(request.getfixturevalue(name), size)
    figures = page.locator("figure svg")
    assert figures.count() >= 4
    for index in range(figures.count()):
        box = figures.nth(index).bounding_box()
        assert box["width"] > 200
        assert box["height"] > 60
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0], "the page itself is not scrolled sideways"
    assert page.evaluate("[...document.images].every(image => image.naturalWidth > 0)")
    below = "cards => cards.nextElementSibling.getBoundingClientRect().top - cards.getBoundingClientRect().bottom"
    gaps = [cards.evaluate(below) for cards in page.locator(".pictures:not(:last-child)").all()]
    assert gaps, "there are cards"
    assert min(gaps) > 8, "what follows cards does not touch them"
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        ground = brightness(page, "document.body", "backgroundColor")
        assert ground < 200 if scheme == "dark" else ground > 600
        figures_text = "document.querySelector('figure svg g[id^=text] g')"
        black = "document.querySelector('figure svg')"  # matplotlib does not write the colour of what is black
        for place, colour in (("document.body", "color"), (figures_text, "fill"), (black, "fill")):
            letters = brightness(page, place, colour)
            assert (letters > 400) == (scheme == "dark"), "letters of page and figures can be read on their ground"
    assert not wrong


def test_the_table_of_classes_sorts_and_filters(opened: Opened, run_report):
    page, wrong = opened(run_report)
    rows = page.locator("#classes tbody tr")
    assert rows.count() == 6

    def column(number: int) -> list[str]:
        return [text.strip() for text in page.locator(f"#classes tbody tr td:nth-child({number})").all_inner_texts()]

    head = page.locator("#classes th").nth(3)
    head.click()
    rising = [float(text) for text in column(4)]
    assert rising == sorted(rising)
    assert len(set(rising)) > 1
    head.press("Enter")
    assert [float(text) for text in column(4)] == sorted(rising, reverse=True)
    name = column(1)[2]
    page.locator("#classes input").fill(name.upper())
    visible = [row for row in rows.all() if row.is_visible()]
    assert len(visible) < 6
    assert all(name in row.inner_text() for row in visible)
    page.locator("#classes input").fill("")
    assert all(row.is_visible() for row in rows.all())
    assert not wrong


def test_a_thousand_classes_are_scrolled_in_their_table_under_its_head(opened: Opened, run_report):
    page, wrong = opened(run_report, PHONE)
    found = page.evaluate(
        """() => {
          const body = document.querySelector("#classes tbody");
          const rows = [...body.rows];
          for (let k = rows.length; k < 1000; k++) body.append(rows[k % rows.length].cloneNode(true));
          const box = document.querySelector("#classes .wide");
          box.scrollTop = box.scrollHeight;
          const top = (element) => element.getBoundingClientRect().top;
          const found = [box.clientHeight, top(box.querySelector("th")) - top(box), box.scrollTop];
          while (body.rows.length > rows.length) body.deleteRow(-1);
          return found;
        }"""
    )
    assert found[0] < PHONE[1]
    assert abs(found[1]) < 2
    assert found[2] > 10_000
    assert not wrong


def test_a_report_holds_everything_and_is_small(run_report, bundle_report):
    for path in (run_report, bundle_report):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"""(src|href)\s*=\s*["'](?!data:|#)""", text), "nothing is fetched from anywhere"
        assert path.stat().st_size < 2_000_000
    runs, learned = run_report.read_text(encoding="utf-8"), bundle_report.read_text(encoding="utf-8")
    for part in ("2 runs compared", "Most confused pairs", ": boosted</td>", "--out ", "foster: most often taken for<"):
        assert part in runs
    assert ": percent" in runs, "the summary"
    for part in ("Every learn, before and after", "held-out accuracy", 'id="calibration"', 'id="exemplars"'):
        assert part in learned


@pytest.mark.usefixtures("unrendered")
def test_a_class_that_was_renamed_is_a_line_of_its_own_and_no_learn(bundle, tmp_path: Path):
    learner = foster.load(bundle, device="cpu")
    learner.rename("0", "zero")
    learner.save(tmp_path / "renamed")
    (archive,) = open_archives([tmp_path / "renamed"])
    *learns, mending = history_grid(archive.manifest.history).rows
    assert [(number, title) for number, _, title, *_ in learns] == [("1", "the arguments"), ("2", "the arguments")]
    assert (mending[0], mending[2], set(mending[3:])) == ("", "renamed a class to zero", {"–"})
    page, labels = page_of([archive]), archive.predictions()[0]
    measured = [("held-out accuracy", f"{accuracy_of(archive):.1f} %"), ("held-out images", str(len(labels)))]
    assert page.headlines[1:5] == [("learns", "2"), *measured, ("kept photos", "50")]
    assert page.parts[0]["tested_on"] == "on held-out images"
    assert page.parts[0]["num_mistakes"] == round(len(labels) * (1 - accuracy_of(archive) / 100)) > 0
    write_report([tmp_path / "renamed"], tmp_path / "renamed.html")
    assert "<td>renamed a class to zero</td>" in (tmp_path / "renamed.html").read_text()


@pytest.mark.usefixtures("unrendered")
def test_a_bundle_in_closed_form_has_kept_photos_and_no_norms(tmp_path: Path):
    safetensors.torch.save_file(build_backbone("resnet8").state_dict(), tmp_path / "weights.safetensors")
    learner = foster.Learner(backbone="resnet8", weights=str(tmp_path / "weights.safetensors"), device="cpu")
    learner.learn(*digits("zero", "one", last=12))
    page = page_of(open_archives([learner.save(tmp_path / "bundle")]))
    assert page.missing == []
    assert [figure.kind for figure in page.parts[0]["figures"]] == ["confusion", "exemplars"]
    assert ("kept photos", "24") in page.headlines
    learner.configure(memory_total=0)
    learner.learn(*digits("two", last=12))
    page = page_of(open_archives([learner.save(tmp_path / "without photos")]))
    assert page.parts[0]["classes"]
    assert [line.split(":")[0] for line in page.missing] == ["exemplars", "mistakes of without photos"]


def test_the_first_learn_made_no_known_class_worse(bundle_report):
    first = next(line for line in bundle_report.read_text(encoding="utf-8").split("<tr>") if "the arguments" in line)
    cells = re.findall(r'<td class="n">(.*?)</td>', first)
    assert cells[-4:-2] == ["–", "–"]
    assert cells[-1] == "–", "there was none"


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn and not written, which takes longer."""
    monkeypatch.setattr("foster.reports.html.svg", lambda figure: "")


@pytest.mark.usefixtures("unrendered")
def test_what_cannot_be_shown_is_told(kept_runs, tmp_path: Path):
    alone = tmp_path / "alone.json"
    alone.write_bytes((kept_runs["foster"] / "results.json").read_bytes())
    page = page_of(open_archives([alone]))
    assert [shown.kind for shown in page.figures] == ["accuracy", "new-old", "matrix"]
    assert any(line.startswith("confusion: ") and "results file alone" in line for line in page.missing)
    assert not any("no runs to draw" in line for line in page.missing), "each figure says what it lacks"


@pytest.mark.usefixtures("unrendered")
def test_an_unfinished_run_has_no_average_in_the_headlines(write_run):
    (run,) = open_archives([write_run("run", accuracy=(99.0, 80.0), finished=False).parent])
    headlines = page_of([run]).headlines
    assert headlines[0] == ("accuracy after 2 tasks", "80.00 %")
    assert not any("average" in name for name, _ in headlines)
    (run,) = open_archives([write_run("finished", accuracy=(99.0, 80.0), boosted=(99.0, 83.0)).parent])
    averages = [("average incremental accuracy", "89.50 %"), ("average, boosted", "91.00 %")]
    assert _run_headlines(run)[:4] == [*averages, ("final accuracy", "80.00 %"), ("forgetting", "12.5 points")]


def test_runs_are_shown_by_class_where_their_classes_came_in_one_order(kept_runs, tmp_path: Path, monkeypatch):
    other = tmp_path / "other"
    shutil.copytree(kept_runs["finetune"], other)
    results = json.loads((other / "results.json").read_text())
    results["classes"].reverse()
    (other / "results.json").write_text(json.dumps(results))
    page = page_of([])
    runs = open_archives([kept_runs["finetune"], other])
    assert len(_class_rows(page, runs)) == 6
    assert page.class_columns == [runs[0].name]
    assert page.missing == ["accuracy by class of other: it has other classes or another class order"]
    assert _run_part(page, runs[0], is_alone=False)["figures"] == []
    assert not any("grad-cam" in line for line in page.missing), "only boosting has something to explain"
    (boosted,) = open_archives([kept_runs["foster"]])
    predictions = boosted.all_predictions
    shares = [*zip(*(row.accuracies for row in _class_rows(page, [boosted])), strict=True)]
    right = [100 * (predictions.by_variant[name] == predictions.labels).mean() for name in page.class_columns]
    assert [*map(np.mean, shares)] == pytest.approx(right), "classes have equally many images"
    assert len(set(right)) == len(right) > 1
    fewer = boosted.predictions()[0][:-1]
    monkeypatch.setattr(boosted, "predictions", lambda: (fewer, fewer))
    assert len(_class_rows(page, [runs[0], boosted])[0].accuracies) == 1, "of other images"
    monkeypatch.setattr(page, "drawn", lambda kind, archives: [kind])
    assert _run_part(page, boosted, is_alone=True)["figures"] == ["grad-cam", "exemplars"]
    assert _run_part(page, boosted, is_alone=False)["figures"] == ["grad-cam"]


@pytest.mark.usefixtures("unrendered")
def test_the_command_writes_a_report_into_which_names_from_files_cannot_write(kept_runs, tmp_path: Path):
    alone, out = tmp_path / "alone.json", tmp_path / "report.html"
    results = json.loads((kept_runs["finetune"] / "results.json").read_text())
    evil = "<script>alert(1)</script>--><b>"
    results["scenario"] = results["settings"]["data"] = evil
    alone.write_text(json.dumps(results))
    done = CliRunner().invoke(app, ["report", str(alone), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"report: {out} (")
    text = out.read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)" in text
    assert evil not in text
    assert "<script>alert" not in text


def test_a_figure_becomes_an_element_whose_colours_the_page_decides():
    with styled():
        figure = new_figure(4, 2)
        figure.subplots().plot([1, 2], color=COLOURS[0])
        figure.suptitle("<script>--><b>")
    text = str(svg(figure))
    assert text.startswith("<svg")
    assert f"stroke: var(--c{COLOURS[0][1:].lower()})" in text
    assert COLOURS[0].lower() not in text
    assert not re.search("<!--|<script>|<b>", text), "letters are paths, and their comments are left out"
    assert re.search(r'<svg style="max-width: \d{3}px; --least-width: \d{3}px"', text)


def test_every_colour_that_a_figure_leaves_to_the_page_is_in_its_style_sheet():
    sheet = (resources.files("foster.reports") / "templates" / "report.css").read_text()
    for colour in THEMED:
        assert f"--c{colour[1:].lower()}: {colour.lower()}" in sheet or f"--c{colour[1:].lower()}: #" in sheet


def test_a_picture_is_held_by_its_address():
    image = torch.randint(0, 256, (3, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    _, _, text = picture(image).partition("base64,")
    found = np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))
    assert (found == image.permute(1, 2, 0).numpy()).all()


def test_the_command_runs_the_settings_of_the_folder_again():
    settings = load_settings("digits", ["method=wa"])
    assert shlex.split(command(settings, Path("a run"))) == ["foster", "run", "a run", "--out", "a run-again"]
