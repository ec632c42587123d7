from pathlib import Path
from typing import Any

import pytest

from foster.errors import SettingsError
from foster.settings.base import flat
from foster.settings.experiment import load_settings
from foster.settings.learner import learner_settings
from foster.settings.toml import packaged_names, packaged_text

PRESET = "cifar100-b0-inc10"


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.toml"
    path.write_text("batch_size = 64\n[foster.compress]\nepochs = 7\n")
    return str(path)


PLUS = {
    "foster.first_turns": "beside",
    "foster.boost_turns": "beside",
    "foster.boost_branches": 2,
    "foster.compress_cutmix": 1.0,
    "foster.compress_old_weight": 0.5,
    "foster.beta_compress": 0.9,
    "foster.recall_first": True,
    "foster.first.epochs": 400,
    "foster.compress.epochs": 300,
}
PAPER_TEXT = {
    "augmentation.crop_padding": 4,
    "augmentation.flip": True,
    "augmentation.policy": "cifar10",
    "augmentation.brightness": 0.0,
    "augmentation.cutout": 0,
    "foster.beta_boost": 0.95,
    "foster.new_on_old": "zero",
    "foster.train_old_block": False,
    "foster.gamma": "paper",
    "foster.temperature": 1.0,
    "foster.compress_with": "paper",
    "foster.first.epochs": 170,
    "foster.compress.epochs": 170,
}


@pytest.mark.parametrize(
    ("recipe", "method", "expected"),
    [
        ("plus", "foster", PLUS),
        ("plus", "slda", {"slda.first_turns": "beside", "slda.first.epochs": 400}),
        ("plus", "ridge", {"ridge.first_turns": "beside", "ridge.first.epochs": 400}),
        ("paper-text", "foster", PAPER_TEXT),
    ],
)
def test_a_recipe_changes_what_it_names_and_nothing_else(recipe: str, method: str, expected: dict[str, Any]) -> None:
    plain, other = (
        flat(load_settings(PRESET, [f"method={method}", *given]).nested()) for given in ([], [f"recipe={recipe}"])
    )
    changed = {key: value for key, value in other.items() if value != plain.get(key)}
    assert changed == {"recipe": recipe, **expected}


def test_what_is_said_beside_a_recipe_wins() -> None:
    for settings in (
        load_settings(PRESET, ["foster.compress.epochs=5", "recipe=plus"]),
        load_settings(PRESET, ["foster.compress.epochs=5"], recipe="plus"),
    ):
        assert settings.options.compress.epochs == 5
        assert settings.options.boost_branches == 2


def test_recipes_are_laid_over_each_other_in_their_order(mine: str, tmp_path: Path) -> None:
    settings = load_settings(PRESET, ["recipe=plus", f"recipe={mine}"])
    assert (settings.options.compress.epochs, settings.options.boost_branches) == (7, 2)
    assert load_settings(PRESET, [f"recipe={mine}", "recipe=plus"]).options.compress.epochs == 300
    assert settings.recipe == "plus+mine"
    saved = tmp_path / "settings.toml"
    saved.write_text(settings.toml())
    assert load_settings(str(saved)) == settings
    assert load_settings(PRESET, ["recipe=none", 'recipe=""']) == load_settings(PRESET)
    learner = learner_settings(["recipe=plus", f"recipe={mine}"])
    assert (learner.batch_size, learner.recipe) == (64, "plus+mine")


def test_a_settings_file_may_name_a_recipe_and_say_the_last_word(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('recipe = "plus"\nincrement = 2\nmemory_total = 50\n[foster]\nboost_branches = 3\n')
    settings = load_settings(str(file), dataset="digits", augmentation="shift")
    assert (settings.options.boost_branches, settings.options.compress.epochs) == (3, 300)


@pytest.mark.parametrize("is_beside", [True, False])
def test_a_settings_file_names_a_recipe_as_seen_from_itself_and_else_from_here(
    is_beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, here = tmp_path / "there" / "my.toml", tmp_path / "here"
    (file.parent / "recipes").mkdir(parents=True)
    (here / "recipes").mkdir(parents=True)
    (here / "recipes" / "mine.toml").write_text("batch_size = 32\n")
    if is_beside:
        (file.parent / "recipes" / "mine.toml").write_text("batch_size = 64\n")
    file.write_text(
        'recipe = "recipes/mine.toml"\ndataset = "digits"\nincrement = 2\nmemory_total = 50\naugmentation = "shift"\n'
    )
    monkeypatch.chdir(here)
    settings = load_settings(str(file))
    assert (settings.batch_size, settings.recipe) == (64 if is_beside else 32, "mine")


def test_a_learner_takes_a_recipe_and_keeps_it() -> None:
    first = learner_settings(["recipe=plus", "foster.boost_branches=3"], memory_total=100)
    assert (first.options.boost_branches, first.options.compress_cutmix, first.recipe) == (3, 1.0, "plus")
    later = learner_settings(base=first, device="cpu")
    assert later.options == first.options


def test_recipes_that_cannot_be_used_are_refused_with_a_reason(tmp_path: Path) -> None:
    wrong, odd = tmp_path / "wrong.toml", tmp_path / "odd.toml"
    odd.write_text('method = "x"\n')
    wrong.write_text("[foster]\nboost_branch = 2\n")
    for overrides, words in (
        ([f"recipe={odd}"], f"unknown method 'x'.*method in preset {PRESET} or recipe {odd}"),
        (["recipe=pluss"], "did you mean 'plus'"),
        (["recipe=missing.toml"], "cannot read recipe 'missing.toml'"),
        ([f"recipe={wrong}"], "boost_branches"),
        (["recipe=3"], "unknown recipe '3'"),
        (["recipe=plus", "method=wa"], "recipe plus has no effect: the method is wa"),
    ):
        with pytest.raises(SettingsError, match=words):
            load_settings(PRESET, overrides)
    with pytest.raises(SettingsError, match=f"or recipe {wrong}"):
        learner_settings([f"recipe={wrong}"])


@pytest.mark.parametrize("name", packaged_names("recipes"))
def test_every_recipe_fits_and_tells_what_it_is_for(name: str) -> None:
    assert load_settings(PRESET, [f"recipe={name}"]).recipe == name
    assert packaged_text("recipes", name).startswith("# ")
