"""Settings: presets, files, key=value pairs, and what is said about everything that does not fit."""

import tomllib
from pathlib import Path

import pytest
from refusals import refused

from foster.errors import SettingsError
from foster.settings.experiment import (
    load_settings,
)
from foster.settings.fit import FitSettings
from foster.settings.methods import METHOD_SETTINGS
from foster.settings.toml import packaged_names, packaged_text

LIST_OF_INC10 = (0.98, 0.975, 0.97, 0.965, 0.96, 0.955, 0.95, 0.945, 0.94)
LIST_OF_INC20 = (0.97, 0.96, 0.95, 0.94)

PUBLISHED = {
    "cifar100-b0-inc20": (LIST_OF_INC20, 0.97, 128, (2000, None), (20,) * 5),
    "cifar100-b0-inc10": (LIST_OF_INC10, 0.97, 128, (2000, None), (10,) * 10),
    "cifar100-b0-inc5": (0.96, 0.97, 128, (2000, None), (5,) * 20),
    "cifar100-b50-inc10": (0.94, 0.97, 128, (None, 20), (50, *(10,) * 5)),
    "cifar100-b50-inc5": (0.94, 0.97, 128, (None, 20), (50, *(5,) * 10)),
    "cifar100-b50-inc2": (0.95, 0.97, 128, (None, 20), (50, *(2,) * 25)),
    "cifar100-b50-inc1": (0.95, 0.98, 64, (None, 20), (50, *(1,) * 50)),
    "imagenet100-b0-inc20": (0.97, 0.97, 256, (2000, None), (20,) * 5),
    "imagenet100-b0-inc10": (0.97, 0.97, 256, (2000, None), (10,) * 10),
    "imagenet100-b0-inc5": (0.97, 0.97, 256, (2000, None), (5,) * 20),
    "imagenet100-b50-inc10": (0.97, 0.97, 256, (None, 20), (50, *(10,) * 5)),
    "imagenet100-b50-inc5": (0.97, 0.97, 256, (None, 20), (50, *(5,) * 10)),
    "imagenet100-b50-inc2": (0.97, 0.97, 256, (None, 20), (50, *(2,) * 25)),
    "imagenet1000-b0-inc100": (0.97, 0.97, 256, (20000, None), (100,) * 10),
}
"""beta for boosting, beta for compression, batch, memory in all and per class, task sizes."""


@pytest.mark.parametrize(
    ("name", "like"),
    [("tinyimagenet-b100-inc10", "cifar100-b50-inc10"), ("tinyimagenet-b0-inc20", "cifar100-b0-inc10")],
)
def test_tiny_imagenet_takes_the_settings_of_cifar_as_they_are(name: str, like: str) -> None:
    settings, usual = load_settings(name), load_settings(like)
    assert (settings.scenario, settings.memory_total) == (name, 2000)
    assert sum(settings.sizes_of_tasks()) == 200
    assert len(settings.sizes_of_tasks()) == (11 if name.endswith("b100-inc10") else len(usual.sizes_of_tasks()))
    assert (settings.options, settings.augmentation, settings.backbone) == (
        usual.options,
        usual.augmentation,
        usual.backbone,
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_is_the_published_protocol(name: str) -> None:
    beta_boost, beta_compress, batch_size, memory, task_sizes = PUBLISHED[name]
    settings = load_settings(name)
    options = settings.options
    assert (options.beta_boost, options.beta_compress) == (beta_boost, beta_compress)
    assert settings.batch_size == batch_size
    assert (settings.memory_total, settings.memory_per_class) == memory
    assert settings.sizes_of_tasks() == task_sizes
    assert settings.scenario == name
    has_photos = name.startswith("imagenet")
    backbone, augmentation = ("resnet18", "photo-auto") if has_photos else ("resnet32", "auto")
    assert (settings.method, settings.seed, settings.backbone) == ("foster", 1993, backbone)
    assert settings.augmentation == augmentation
    assert not has_photos or (settings.photos.image_size, settings.photos.short_side) == (224, 256)
    assert options.first == FitSettings(epochs=200, learning_rate=0.1, weight_decay=5e-4)
    assert options.boost == FitSettings(epochs=170, learning_rate=0.1, weight_decay=5e-4)
    assert options.compress == FitSettings(epochs=130, learning_rate=0.1, weight_decay=0)
    assert options.temperature == 2


@pytest.mark.parametrize("name", ["digits", *PUBLISHED])
def test_a_preset_says_in_its_first_line_what_it_is_and_leaves_no_choice_of_data_or_memory_open(name: str) -> None:
    text = packaged_text("presets", name)
    assert text.startswith("# ")
    given = tomllib.loads(text)
    assert given.keys() >= {"method", "seed", "dataset", "base_classes", "increment", "backbone", "batch_size"}
    assert len(given.keys() & {"memory_total", "memory_per_class"}) == 1


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "cifar100-b0-inc10-foster-s1993"),
        (["method=wa"], "cifar100-b0-inc10-wa-s1993"),
        (["method=wa", "augmentation=plain"], "cifar100-b0-inc10-wa-s1993"),
        (["method=wa", "augmentation=auto"], "cifar100-b0-inc10-wa-auto-s1993"),
        (["augmentation=plain", "seed=7"], "cifar100-b0-inc10-foster-plain-s7"),
        (["augmentation.flip=false"], "cifar100-b0-inc10-foster-custom-s1993"),
        (["recipe=plus"], "cifar100-b0-inc10-foster-plus-s1993"),
    ],
)
def test_the_name_of_a_run_tells_its_recipe_and_an_unpublished_augmentation(overrides: list[str], name: str) -> None:
    assert load_settings("cifar100-b0-inc10", overrides).run_name == name


def test_a_setting_in_the_place_of_the_preset_is_told_where_it_belongs() -> None:
    with pytest.raises(SettingsError, match="'dataset=folder'"):
        load_settings("dataset=folder")


@pytest.mark.parametrize(
    ("source", "overrides"),
    [
        ("digits", ()),
        ("cifar100-b0-inc10", ()),
        *(("digits", (f"method={name}",)) for name in ("replay", "podnet", "ridge")),
        ("digits", ("memory_total=none", "memory_per_class=7", "order_seed=5", "device=cpu", "engine.threads=2")),
        ("digits", ("augmentation={flip=true, resized_crop=[0.5, 1.0], policy='imagenet'}",)),
        ("digits", ("foster.boost.learning_rate=1e-30", "foster.beta_boost=[0, 0.5, 0.25, 0.99, 0.1]")),
        ("digits", ("dataset=synthetic", "synthetic.num_classes=3", "base_classes=1")),
        ("digits", ('class_order=["9","8","7","6","5","4","3","2","1","0"]',)),
    ],
)
def test_written_settings_load_again_as_equal_ones(source: str, overrides: tuple[str, ...], tmp_path: Path) -> None:
    settings = load_settings(source, overrides)
    path = tmp_path / "settings.toml"
    path.write_text(settings.toml(), encoding="utf-8")
    assert load_settings(str(path)) == settings
    assert load_settings(str(tmp_path)) == settings, "the folder of a run stands for its settings"


@pytest.mark.parametrize(
    ("source", "override", "fewest"),
    [
        ("digits", "batch_size=100", 25),
        ("digits", "batch_size=4", 2),
        ("digits", "smallest_batch=7", 7),
        ("cifar100-b0-inc10", "seed=1", 2),
        ("tinyimagenet-b0-inc20", "seed=1", 2),
        ("imagenet100-b0-inc10", "seed=1", 2),
        ("imagenet100-b0-inc10", "dataset=folder", 64),
        ("cifar100-b0-inc10", "smallest_batch=9", 9),
    ],
)
def test_a_last_batch_has_a_quarter_of_a_batch_but_published_protocols_have_them_all(
    source: str, override: str, fewest: int
) -> None:
    assert load_settings(source, [override]).fewest_in_a_batch == fewest


def test_the_last_word_wins() -> None:
    assert load_settings("digits", ["seed=1", "seed=2"]).seed == 2
    assert load_settings("digits", ["data=one"], data="two").data == "two"
    assert load_settings("digits", ["data=one"], data=None).data == "one"


def test_the_first_beta_of_a_list_belongs_to_the_second_task_and_more_of_them_are_fine() -> None:
    settings = load_settings("digits", ["foster.beta_boost=[0.9, 0.8, 0.7, 0.6, 0.5]"])
    assert len(settings.sizes_of_tasks()) - 1 < 5
    assert [settings.options.beta_boost_of(task) for task in (1, 2, 3)] == [0.9, 0.8, 0.7]


@pytest.mark.parametrize(
    ("content", "mentions"),
    [
        (b"dataset = ", "TOML"),
        (b"\xff\xfe", "utf-8"),
        (b"sed = 3\n", "'seed'"),
        (b"[foster.bost]\nepochs = 3\n", "'foster.bost'"),
        (b'method = ["foster"]\n', "method"),
        (b"[seed]\nx = 1\n", "{'x': 1}"),
        (b"seed = 1\n", "dataset: "),
    ],
)
def test_a_bad_settings_file_is_refused_in_one_line_that_names_it(
    content: bytes, mentions: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    line = refused(source=str(path))
    assert mentions in line
    assert str(path) in line


def test_a_source_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "'cifar100-b0-inc10'" in refused(source="cifar100-b0-inc100")
    assert f"'{tmp_path / 'no.toml'}'" in refused(source=str(tmp_path / "no.toml"))
    assert f"'{tmp_path / 'settings.toml'}'" in refused(source=str(tmp_path))


def test_a_folder_with_the_name_of_a_preset_does_not_hide_the_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_settings("digits").dataset == "digits"


@pytest.mark.parametrize(
    ("dataset", "source"),
    [("digits", "digits"), ("digits", "nowhere"), ("digits", "imagenet100"), ("imagenet100", "digits")],
)
def test_unlabeled_images_are_of_another_dataset_and_of_one_size(dataset: str, source: str) -> None:
    """Its own images of later tasks must not be trained on."""
    with pytest.raises(SettingsError, match=rf"foster\.unlabeled: '{source}' .*'{dataset}'.*cifar10, cifar100"):
        load_settings("cifar100-b0-inc10", [f"dataset={dataset}", f"foster.unlabeled={source}"])


def test_what_may_not_be_meant_is_remarked() -> None:
    assert load_settings("cifar100-b0-inc10").remarks(10) == []
    (betas,) = load_settings("cifar100-b0-inc10", ["base_classes=20", "increment=20"]).remarks(5)
    assert betas.startswith("foster.beta_boost: 9 ")
    remarks = load_settings("cifar100-b0-inc10", ["method=replay", "replay.later.epochs=20"]).remarks(10)
    assert [remark.partition(":")[0] for remark in remarks] == ["replay.later.milestones"]
    for method in METHOD_SETTINGS:
        for preset in packaged_names("presets"):
            settings = load_settings(preset, [f"method={method}"])
            assert type(settings.options) is METHOD_SETTINGS[method]
            assert settings.remarks(len(settings.sizes_of_tasks())) == [], (method, preset)


def test_where_files_lie_is_not_published() -> None:
    settings = load_settings("digits", ["weights=/home/me/w.safetensors"], data="/home/me/data")
    assert "data" not in settings.published()
    assert settings.published()["weights"] == "w.safetensors"
    assert settings.nested()["weights"] == "/home/me/w.safetensors"


def test_tasks_may_have_any_sizes_that_are_all_classes_together(tmp_path: Path) -> None:
    settings = load_settings("cifar100-b0-inc10", ["task_sizes=[50,5,5,20,20]"])
    assert settings.sizes_of_tasks() == (50, 5, 5, 20, 20)
    assert settings.scenario == "cifar100-50-5x2-20x2"
    (tmp_path / "mine.toml").write_text(settings.toml())
    assert load_settings(str(tmp_path / "mine.toml")) == settings
    with pytest.raises(SettingsError, match=r"task_sizes: .*55.*100"):
        load_settings("cifar100-b0-inc10", ["task_sizes=[50,5]"])
    with pytest.raises(SettingsError, match="task_sizes"):
        load_settings("cifar100-b0-inc10", ["task_sizes=[0,100]"])
    assert "task_sizes" not in load_settings("cifar100-b0-inc10").toml()


def test_a_class_order_is_read_from_a_file_beside_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [str(digit) for digit in reversed(range(10))]
    (tmp_path / "order.txt").write_text("\n".join(names) + "\n")
    (tmp_path / "mine.toml").write_text(
        f'class_order = "order.txt"\n{load_settings("digits").toml()}'.replace("class_order = []\n", "")
    )
    settings = load_settings(str(tmp_path / "mine.toml"))
    assert settings.class_order == tuple(names)
    assert names[0] in settings.toml(), "a run keeps the names: the file may change"
    monkeypatch.chdir(tmp_path)
    assert load_settings("digits", ["class_order=order.txt"]) == settings
    with pytest.raises(SettingsError, match=r"^class_order: .*nothing\.txt"):
        load_settings("digits", ["class_order=nothing.txt"])
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(SettingsError, match=r"^class_order: .*empty\.txt"):
        load_settings("digits", ["class_order=empty.txt"])
