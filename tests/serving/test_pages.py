"""The page in a real browser: /usr/bin/chromium, or what FOSTER_BROWSER names."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import SECONDS, Server, photo, serving

import foster
from foster.cli import app
from foster.data.photos.decode import readable_formats

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
BROWSER = os.environ.get("FOSTER_BROWSER") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(not BROWSER, reason="no chromium: apt-get install chromium, or set FOSTER_BROWSER")

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
REFUSED = ("the server responded with a status of 422", "the server responded with a status of 429")
"""What the browser itself says where the server refuses a photo or a name, or is full, as some tests want it to."""

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "color_scheme": "dark"}


@pytest.fixture(scope="module")
def browser() -> Iterator["playwright.Browser"]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def server(small_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("page")
    (folder / "queue").mkdir()
    for k in range(3):
        (folder / "queue" / f"{k}.png").write_bytes(photo(100 + k))
    with serving(small_bundle, folder, "--feedback", folder / "feedback", "--to-label", folder / "queue") as found:
        yield found


@pytest.fixture(scope="module")
def tabs(browser: "playwright.Browser") -> Callable[..., "playwright.Page"]:
    """An empty tab of each kind of device, made once: another would take a second."""
    made: dict[bool, playwright.Page] = {}

    def tab(**device: Any) -> "playwright.Page":
        if bool(device) not in made:
            made[bool(device)] = browser.new_context(**device).new_page()
        return made[bool(device)]

    return tab


@pytest.fixture
def page(
    tabs: Callable[..., "playwright.Page"], server: Server, request: pytest.FixtureRequest
) -> Iterator["playwright.Page"]:
    """The page; a test fails where anything is written to the console as an error."""
    opened = tabs(**getattr(request, "param", {}))
    opened.set_default_timeout(1000 * SECONDS)
    problems: list[str] = []
    listeners = {
        "console": lambda message: problems.append(message.text) if message.type == "error" else None,
        "pageerror": lambda error: problems.append(str(error)),
    }
    for event, listener in listeners.items():
        opened.on(event, listener)
    opened.goto(server.url)
    opened.locator("#bundle:not(:empty)").wait_for()
    yield opened
    opened.goto("about:blank")  # what a test left behind ends with its page
    opened.unroute_all()
    for event, listener in listeners.items():
        opened.remove_listener(event, listener)
    assert not [problem for problem in problems if not any(words in problem for words in REFUSED)]


def drop(page: "playwright.Page", name: str, content: bytes) -> None:
    """Drop a file on the page, as a mouse would."""
    transfer = page.evaluate_handle(
        """([name, bytes]) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([new Uint8Array(bytes)], name, {type: "image/png"}));
            return transfer;
        }""",
        [name, list(content)],
    )
    page.dispatch_event("#drop", "drop", {"dataTransfer": transfer})


def feedback_of(server: Server) -> dict[str, list[bytes]]:
    folder = server.said.parent / "feedback"
    return {path.name: sorted(file.read_bytes() for file in path.iterdir()) for path in sorted(folder.iterdir())}


def test_a_dropped_photo_is_answered_corrected_stored_and_learned(
    page: "playwright.Page", server: Server, small_bundle: Path, tmp_path: Path
) -> None:
    known = foster.load(small_bundle, device="cpu")
    (wanted,) = known.predict([photo(7)], top=1)
    drop(page, "seven.png", photo(7))
    card = page.locator(".card")
    playwright.expect(card.locator(".verdict")).to_have_text(str(wanted.label))
    playwright.expect(card.locator(".bars .share").first).to_have_text(f"{100 * (wanted.confidence or 0):.1f} %")
    announced = page.locator("#live")
    playwright.expect(announced).to_have_text(f"{wanted.label}, {100 * (wanted.confidence or 0):.1f} %.")
    card.get_by_role("button", name="Where?").click()
    card.locator(".heat:not([hidden])").wait_for()
    card.get_by_role("button", name="Wrong?").click()
    assert page.evaluate("document.activeElement.className") == "label"
    page.keyboard.type("../owl")
    page.keyboard.press("Enter")
    playwright.expect(card.locator(".hint")).to_contain_text("'../owl'")
    card.locator("input.label").fill("owl")
    page.keyboard.press("Enter")
    playwright.expect(card.locator(".stored span")).to_have_text("Stored as owl")
    assert feedback_of(server) == {"owl": [photo(7)]}
    playwright.expect(page.locator("#collected")).to_have_text("1 photo for the next learn: owl (1).")
    playwright.expect(announced).to_have_text("Stored as owl.")

    # What the page stored is what the command takes.
    command = f"learn {server.said.parent / 'feedback'} --from {small_bundle} --bundle {tmp_path / 'next'} --quiet"
    with pytest.raises(SystemExit) as ended:
        app([*command.split(), "validation_share=0"])
    assert ended.value.code == 0
    assert "owl" in foster.load(tmp_path / "next", device="cpu").class_names

    card.get_by_role("button", name="Undo").click()
    card.get_by_role("button", name="Wrong?").wait_for()
    assert feedback_of(server) == {}


def test_waiting_photos_are_labelled_one_after_the_other_with_keys(page: "playwright.Page", server: Server) -> None:
    playwright.expect(page.locator("#waiting-text")).to_have_text("3 photos wait for a label.")
    page.get_by_role("button", name="Label them").click()
    choices = page.locator("#choices button")
    first = choices.first.locator(".label").inner_text()
    second = choices.nth(1).locator(".label").inner_text()
    page.keyboard.press("1")
    playwright.expect(page.locator("#progress")).to_have_text("2 of 3")
    assert feedback_of(server) == {first: [photo(100)]}
    choices.first.wait_for()
    page.keyboard.press("u")  # a mistake
    playwright.expect(page.locator("#progress")).to_have_text("1 of 3")
    assert feedback_of(server) == {}
    choices.first.wait_for()
    page.keyboard.press("2")
    playwright.expect(page.locator("#progress")).to_have_text("2 of 3")
    choices.first.wait_for()
    for key, progress in (("s", "3 of 3"), ("u", "2 of 3"), ("s", "3 of 3")):  # only the skip is undone
        page.keyboard.press(key)
        playwright.expect(page.locator("#progress")).to_have_text(progress)
        choices.first.wait_for()
    page.keyboard.press("n")
    page.keyboard.type("a new class")
    page.keyboard.press("Enter")
    page.locator("#labelling").wait_for(state="hidden")
    assert feedback_of(server) == {second: [photo(100)], "a new class": [photo(102)]}
    playwright.expect(page.locator("#waiting-text")).to_have_text("1 photo waits for a label.")


def test_one_click_on_a_bar_answers_and_a_class_just_named_is_offered_for_the_next_photo(
    page: "playwright.Page", server: Server
) -> None:
    def unknown(route: "playwright.Route") -> None:
        answer = route.fetch().json()
        answer["predictions"][0] |= {"is_unknown": True, "label": "unknown"}
        route.fulfill(json=answer)

    page.route("**/predict?top=9", unknown)
    before = feedback_of(server)
    drop(page, "a.png", photo(21))
    first = page.locator(".card", has_text="a.png")
    playwright.expect(first.locator(".verdict")).to_have_text("I do not know this")
    chosen = first.locator(".bar .label").nth(1).inner_text()
    first.locator(".bar").nth(1).click()
    playwright.expect(first.locator(".stored span")).to_have_text(f"Stored as {chosen}")
    first.get_by_role("button", name="Undo").click()
    playwright.expect(first.locator(".stored")).to_be_hidden()
    assert feedback_of(server) == before
    first.get_by_role("button", name="Name it").click()
    page.keyboard.type("lynx")
    page.keyboard.press("Enter")
    playwright.expect(first.locator(".stored span")).to_have_text("Stored as lynx")
    drop(page, "b.png", photo(22))
    second = page.locator(".card", has_text="b.png")
    second.get_by_role("button", name="lynx").click()
    playwright.expect(second.locator(".stored span")).to_have_text("Stored as lynx")
    assert feedback_of(server)["lynx"] == sorted([photo(21), photo(22)])
    drop(page, "c.png", photo(23))
    drop(page, "d.png", photo(24))
    page.get_by_role("button", name="Label one after the other").click()
    playwright.expect(page.locator("#choices button", has_text="lynx")).to_have_count(1)
    page.keyboard.press("Escape")
    for card in (first, second):
        card.get_by_role("button", name="Undo").click()
        playwright.expect(card.locator(".stored")).to_be_hidden()
    assert feedback_of(server) == before


@pytest.mark.parametrize("page", [PHONE], indirect=True, ids=["phone"])
def test_a_phone_is_not_told_to_drop_or_paste(page: "playwright.Page") -> None:
    told = page.locator("#drop").inner_text()
    assert "Take a photo" in told
    assert not any(word in told.lower() for word in ("drop", "paste"))


def test_what_cannot_be_read_is_told_and_the_rest_is_answered(page: "playwright.Page") -> None:
    is_read = "HEIF" in readable_formats()
    heic = photo(2, "HEIF", (64, 48)) if is_read else b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
    page.set_input_files(
        "#files",
        [
            {"name": "good.png", "mimeType": "image/png", "buffer": photo(1)},
            {"name": "bad.png", "mimeType": "image/png", "buffer": b"no image"},
            {"name": "IMG_1.HEIC", "mimeType": "", "buffer": heic},
        ],
    )
    phone = page.locator(".card", has_text="IMG_1.HEIC")
    if is_read:
        phone.get_by_role("button", name="Right").wait_for()
    else:
        told = "No answer: a HEIC photo; to read it, install the extra: pip install 'foster-cil[heic]'"
        playwright.expect(phone.locator(".verdict")).to_have_text(told)
    bad = page.locator(".card", has_text="bad.png")
    playwright.expect(bad.locator(".verdict")).to_have_text("No answer: not an image of a known format")
    good = page.locator(".card", has_text="good.png")
    good.get_by_role("button", name="Right").wait_for()
    page.get_by_role("button", name="Clear").click()
    playwright.expect(page.locator(".card")).to_have_count(0)


def test_a_full_server_is_asked_again_for_a_while_after_some_time(page: "playwright.Page") -> None:
    num_left = 21

    def answered(route: "playwright.Route") -> None:
        nonlocal num_left
        num_left -= 1
        if num_left < 0:
            route.continue_()
        else:
            route.fulfill(status=429, json={"error": "the queue is full"})

    page.route("**/predict?top=9", answered)
    page.evaluate(
        """() => {
            const wait = window.setTimeout;
            window.waits = [];
            window.setTimeout = (done, time) => { window.waits.push(time); return wait(done, 0); };
        }"""
    )
    drop(page, "a.png", photo(1))
    playwright.expect(page.locator(".card .verdict")).to_have_text("No answer: the queue is full")
    waits = page.evaluate("window.waits")
    assert len(waits) == 20
    assert 300 <= min(waits) < max(waits) <= 1000
    assert len(set(waits)) == 20, "not all pages at the same time"


def test_photos_that_are_dropped_before_the_server_has_answered_are_answered_later(page: "playwright.Page") -> None:
    def drop_first(route: "playwright.Route") -> None:
        drop(page, "early.png", photo(1))
        route.continue_()

    page.route("**/info", drop_first, times=1)
    page.reload()
    page.locator(".card .bars li").first.wait_for()


def test_a_folder_and_a_pasted_photo_are_taken_like_dropped_ones(page: "playwright.Page", tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "notes.txt").write_text("no photo")
    for k, folder in enumerate((tmp_path, tmp_path / "inner", tmp_path / "inner")):
        (folder / f"{k}.png").write_bytes(photo(k))
    page.set_input_files("#folder", tmp_path)
    playwright.expect(page.locator(".card .actions:not([hidden])")).to_have_count(3)
    playwright.expect(page.locator("#no-photos")).to_have_text("Not a photo: notes.txt.")
    page.evaluate(
        """(bytes) => {
            const clipboardData = new DataTransfer();
            clipboardData.items.add(new File([new Uint8Array(bytes)], "pasted.png", {type: "image/png"}));
            document.dispatchEvent(new ClipboardEvent("paste", {clipboardData, bubbles: true}));
        }""",
        list(photo(9)),
    )
    playwright.expect(page.locator(".card .actions:not([hidden])")).to_have_count(4)
    playwright.expect(page.locator(".card .name").first).to_have_text("pasted.png")
    page.get_by_role("button", name="Label one after the other").click()
    playwright.expect(page.locator("#progress")).to_have_text("1 of 4")
    page.keyboard.press("Escape")
    page.locator("#labelling").wait_for(state="hidden")


def test_the_page_asks_for_the_token(
    tabs: Callable[..., "playwright.Page"], small_bundle: Path, tmp_path: Path
) -> None:
    with serving(small_bundle, tmp_path, "--token", "a secret of enough letters") as server:
        page = tabs()
        page.set_default_timeout(1000 * SECONDS)
        page.goto(server.url)
        page.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        playwright.expect(page.locator("#problem")).to_have_text("This is not the token.")
        page.get_by_label("Token").fill("a secret of enough letters")
        page.get_by_role("button", name="Enter").click()
        page.locator("#bundle:not(:empty)").wait_for()
        drop(page, "a.png", photo())
        page.locator(".card .bars li").first.wait_for()
        page.goto("about:blank")
