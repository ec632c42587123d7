"""How plug-ins are found, and what is said where they are not, or do not work."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from foster.errors import SettingsError
from foster.settings import plugins
from foster.settings.experiment import load_settings
from foster.settings.learner import learner_settings
from foster.settings.plugins import check_imported, load_plugins, plugin_hashes, register


@pytest.fixture(autouse=True)
def a_fresh_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(plugins, "_ORIGINS", {})
    monkeypatch.setattr(plugins, "_HASHES", {})
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("lab_"):
            del sys.modules[name]


def test_a_module_of_the_current_folder_is_found_again_from_another() -> None:
    Path("lab_a.py").write_text("")
    assert load_plugins(["lab_a", "lab_a.py"]) == (str(Path("lab_a.py").resolve()),)
    assert load_plugins(["pytest"]) == ("pytest",), "Python finds it by itself"
    assert sys.path[-1] == str(Path.cwd()), "behind all that others need"


def test_a_module_beside_the_settings_is_found_again_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "lab_b.py").write_text("")
    for _ in range(2):
        assert load_plugins(["lab_b"], tmp_path) == (str(tmp_path / "lab_b.py"),)
    package = tmp_path / "lab_c"
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert load_plugins(["lab_c"], tmp_path) == (str(package),)
    assert load_plugins([str(package), "../lab_b.py"]) == (str(package), str(tmp_path / "lab_b.py"))
    # A run that was moved to another machine: the module is imported by its name, if it is there.
    assert load_plugins(["/nowhere/lab_b.py"]) == (str(tmp_path / "lab_b.py"),)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("lab_nobody", None, "no such module"),
        ("lab_d", "import lab_nobody", "ModuleNotFoundError"),
        ("lab_e", "1 / 0", "ZeroDivisionError: division by zero"),
        ("lab_f", "raise SystemExit('no')", "SystemExit: no"),
        ("lab_g", "def", "SyntaxError"),
        ("not a name", None, "module"),
    ],
)
def test_what_cannot_be_imported_is_one_line(name: str, content: str | None, expected: str) -> None:
    if content is not None:
        Path(f"{name}.py").write_text(content)
    with pytest.raises(SettingsError) as caught:
        load_plugins([name])
    assert expected in str(caught.value)
    assert repr(name)[:8] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_with_the_name_of_another_module_is_refused() -> None:
    Path("json.py").write_text("")
    with pytest.raises(SettingsError, match=r"json\.py'"):
        load_plugins(["json.py"])
    Path("sys.py").write_text("")
    with pytest.raises(SettingsError, match="'sys'"):
        load_plugins(["sys.py"])
    Path("lab_p.py").write_text("")
    sys.modules["lab_p"] = ModuleType("lab_p")  # from no file, as that of a script is
    with pytest.raises(SettingsError, match="'lab_p'"):
        load_plugins(["lab_p.py"])


def test_the_hash_of_a_plug_in_covers_its_file_or_all_files_of_its_package() -> None:
    Path("lab_parts/deep").mkdir(parents=True)
    for name in ("lab_parts/__init__.py", "lab_parts/deep/part.py", "lab_q.py", "lab_unused.py"):
        Path(name).write_text("")
    asked = load_plugins(["lab_q", "lab_parts"])
    before = plugin_hashes(asked, {})
    assert before.keys() == {"lab_q", "lab_parts"}, "by their names: another machine has them elsewhere"
    for edited, noticed in (
        ("lab_unused.py", set()),
        ("lab_q.py", {"lab_q"}),
        ("lab_parts/deep/part.py", {"lab_parts"}),
    ):
        Path(edited).write_text("# edited\n")
        assert plugin_hashes(asked, {}) == before, "as they were imported"
        for name in before:
            del sys.modules[name]
        load_plugins(asked)
        now = plugin_hashes(asked, {})
        assert {name for name in now if now[name] != before[name]} == noticed
        before = now


def made() -> None:
    """What a plug-in registers."""


def test_a_name_belongs_to_whoever_registered_it_first() -> None:
    table = {"ours": 0}
    register("method", table, "theirs", 1, made)
    register("method", table, "theirs", 2, made)
    assert table["theirs"] == 2, "the same function, once more"
    with pytest.raises(SettingsError, match=r"'ours'.*foster itself"):
        register("method", table, "ours", 1, made)
    with pytest.raises(SettingsError, match=f"'theirs'.*'{__name__}'"):
        register("method", table, "theirs", 3, test_a_name_belongs_to_whoever_registered_it_first)
    with pytest.raises(SettingsError, match=r"'My\.Method'"):
        register("method", table, "My.Method", 1, made)


def test_what_a_file_from_anywhere_names_must_be_there_already() -> None:
    Path("lab_i.py").write_text("")
    with pytest.raises(SettingsError, match="--plugin lab_i"):
        check_imported(["lab_i"], "it")
    load_plugins(["lab_i"])
    check_imported(["/elsewhere/lab_i.py"], "it")


@pytest.mark.parametrize("value", ['"lab"', "1", "[1]"])
def test_plugins_are_a_list_of_names(value: str) -> None:
    Path("mine.toml").write_text(f"plugins = {value}")
    with pytest.raises(SettingsError, match=r"^plugins: "):
        load_settings("mine.toml")
    with pytest.raises(SettingsError, match="preset digits"):
        load_settings("digits", [f"plugins={value}"])


def test_plug_ins_of_the_file_the_keys_and_the_caller_are_kept_in_this_order() -> None:
    for name in ("lab_j", "lab_k", "lab_l"):
        Path(f"{name}.py").write_text("")
    text = load_settings("digits").toml()
    Path("mine.toml").write_text('plugins = ["lab_j"]\n' + text)
    first, second, third = (str(Path(f"{name}.py").resolve()) for name in ("lab_j", "lab_k", "lab_l"))
    assert load_settings("mine.toml", plugins=["lab_k"]).plugins == (first, second)
    settings = load_settings("mine.toml", ['plugins=["lab_l"]', "seed=2"])
    assert (settings.plugins, settings.seed) == ((third,), 2)
    assert "plugins" not in settings.published()
    assert "plugins" not in text
    assert learner_settings(plugins=["lab_k"]).plugins == (second,)
