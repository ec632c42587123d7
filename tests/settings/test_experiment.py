"""Settings: presets, files, key=value pairs, and what is said about everything that does not fit."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from foster.errors import FosterError, SettingsError
from foster.settings.experiment import (
    AUGMENTATIONS,
    AugmentationSettings,
    Settings,
    all_keys,
    load_settings,
    make_settings,
    preset_names,
    preset_text,
)
from foster.settings.fit import FitSettings
from foster.settings.methods import METHOD_SETTINGS, FosterSettings, ReplaySettings

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
}
"""beta for boosting, beta for compression, batch, memory in all and per class, task sizes."""


def foster_options(settings: Settings) -> FosterSettings:
    assert isinstance(settings.options, FosterSettings)
    return settings.options


def refused(*overrides: str, source: str = "digits") -> str:
    """The one line with which the settings are refused."""
    with pytest.raises(FosterError) as caught:
        load_settings(source, overrides)
    assert caught.value.exit_code == 2
    line = str(caught.value)
    assert line
    assert "\n" not in line
    return line


def plain(**changes: Any) -> dict[str, Any]:
    """The least that a settings file must hold, changed; None takes a key away."""
    data = {"dataset": "digits", "increment": 2, "memory_total": 100, **changes}
    return {key: value for key, value in data.items() if value is not None}


def test_the_presets_are_digits_and_the_published_protocols() -> None:
    on_imagenet = [name for name in preset_names() if name.startswith("imagenet")]
    assert len(on_imagenet) == 7
    assert preset_names() == sorted(["digits", *PUBLISHED, *on_imagenet])


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_is_the_published_protocol(name: str) -> None:
    beta_boost, beta_compress, batch_size, memory, task_sizes = PUBLISHED[name]
    settings = load_settings(name)
    options = foster_options(settings)
    assert (options.beta_boost, options.beta_compress) == (beta_boost, beta_compress)
    assert settings.batch_size == batch_size
    assert (settings.memory_total, settings.memory_per_class) == memory
    assert settings.task_sizes == task_sizes
    assert settings.scenario == name
    assert (settings.method, settings.seed, settings.backbone) == ("foster", 1993, "resnet32")
    assert settings.augmentation == "auto"
    assert options.first == FitSettings(epochs=200, learning_rate=0.1, weight_decay=5e-4)
    assert options.boost == FitSettings(epochs=170, learning_rate=0.1, weight_decay=5e-4)
    assert options.compress == FitSettings(epochs=130, learning_rate=0.1, weight_decay=0)
    assert (options.temperature, options.distillation_weight) == (2, 1)


@pytest.mark.parametrize("name", ["digits", *PUBLISHED])
def test_a_preset_says_in_its_first_line_what_it_is_and_leaves_no_choice_of_data_or_memory_open(name: str) -> None:
    text = preset_text(name)
    assert text.startswith("# ")
    given = tomllib.loads(text)
    assert given.keys() >= {"method", "seed", "dataset", "base_classes", "increment", "backbone", "batch_size"}
    assert len(given.keys() & {"memory_total", "memory_per_class"}) == 1


def test_the_first_beta_of_a_list_belongs_to_the_second_task() -> None:
    options = foster_options(load_settings("cifar100-b0-inc10"))
    assert [options.beta_boost_of(task) for task in range(1, 10)] == list(LIST_OF_INC10)
    assert foster_options(load_settings("digits")).beta_boost_of(3) == 0.95


@pytest.mark.parametrize("method", METHOD_SETTINGS)
@pytest.mark.parametrize("preset", ["digits", "cifar100-b0-inc10", "cifar100-b50-inc1"])
def test_every_method_runs_on_every_kind_of_preset(preset: str, method: str) -> None:
    settings = load_settings(preset, [f"method={method}"])
    assert type(settings.options) is METHOD_SETTINGS[method]
    if preset != "digits":
        assert settings.augmentation == METHOD_SETTINGS[method].published_augmentation


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "cifar100-b0-inc10-foster-s1993"),
        (["method=wa"], "cifar100-b0-inc10-wa-s1993"),
        (["method=wa", "augmentation=plain"], "cifar100-b0-inc10-wa-s1993"),
        (["method=wa", "augmentation=auto"], "cifar100-b0-inc10-wa-auto-s1993"),
        (["augmentation=plain", "seed=7"], "cifar100-b0-inc10-foster-plain-s7"),
        (["augmentation.flip=false"], "cifar100-b0-inc10-foster-custom-s1993"),
    ],
)
def test_the_name_of_a_run_tells_an_augmentation_that_is_not_the_published_one(overrides: list[str], name: str) -> None:
    assert load_settings("cifar100-b0-inc10", overrides).run_name == name


ODD = 'a "b" \\ c\t\x7f\x00 \u2028 日本 😀 = [x] # \r\n'


@pytest.mark.parametrize(
    ("source", "overrides"),
    [
        *((name, ()) for name in ["digits", *PUBLISHED]),
        *(("digits", (f"method={name}",)) for name in METHOD_SETTINGS),
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


def test_odd_text_in_settings_is_written_so_that_it_loads_again(tmp_path: Path) -> None:
    settings = make_settings(plain(data=ODD, foster={"unlabeled": ODD}, dataset="synthetic", class_order=None), "here")
    names = tuple(f"{ODD}{k}" for k in range(10))
    settings = settings.model_copy(update={"class_order": names})
    path = tmp_path / "settings.toml"
    path.write_bytes(settings.toml().encode())
    assert load_settings(str(path)) == settings


def test_a_written_file_holds_every_key_of_its_method(tmp_path: Path) -> None:
    def flat(data: dict[str, Any], prefix: str = "") -> set[str]:
        nested = [flat(value, f"{prefix}{key}.") for key, value in data.items() if isinstance(value, dict)]
        return set().union(*nested, (prefix + key for key, value in data.items() if not isinstance(value, dict)))

    settings = load_settings("digits", ["dataset=synthetic"])
    written = flat(tomllib.loads(settings.toml()))
    expected = {key for key in all_keys() if key.split(".")[0] not in METHOD_SETTINGS.keys() - {"foster"}}
    missing = {key for key in expected - written if not key.startswith(("augmentation.", "photos."))}
    silent = {"learning_rate_scale", "memory_per_class", "order_seed", "plugins", "weights"}
    assert missing == silent, "only keys without a value may be left out"
    assert written <= expected


def test_the_published_augmentation_follows_the_method_and_a_name_or_a_whole_table_replaces_it() -> None:
    assert load_settings("cifar100-b0-inc10", ["method=replay"]).augmentation == "plain"
    named = load_settings("cifar100-b0-inc10", ["augmentation=plain"])
    assert named.augmentation_settings == AUGMENTATIONS["plain"]
    table = load_settings("digits", ["augmentation={flip=true, cutout=2}"])
    assert table.augmentation_settings == AugmentationSettings(flip=True, cutout=2)
    assert table.augmentation_name == "custom"


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["augmentation.flip=false"], "auto"),
        (["augmentation.flip=false", "method=wa"], "plain"),
        (["augmentation=photo", "augmentation.flip=false"], "photo"),
        (["augmentation.flip=false", "augmentation=photo"], "photo"),
        (["augmentation=published", "augmentation.flip=false"], "auto"),
    ],
)
def test_a_part_changes_the_augmentation_that_is_named_or_published(
    overrides: list[str], name: str, tmp_path: Path
) -> None:
    settings = load_settings("cifar100-b0-inc10", overrides)
    assert settings.augmentation_settings == AUGMENTATIONS[name].model_copy(update={"flip": False})
    (tmp_path / "settings.toml").write_text(settings.toml(), encoding="utf-8")
    again = load_settings(str(tmp_path), ["augmentation.cutout=4"])
    expected = AUGMENTATIONS[name].model_copy(update={"flip": False, "cutout": 4})
    assert again.augmentation_settings == expected, "over a table as well"


def test_values_on_the_command_line_are_toml_and_anything_else_is_text() -> None:
    settings = load_settings(
        "digits",
        [
            "seed=7",
            "epochs_scale = 5e-1",
            "method='replay'",
            "data=/some where/else",
            "engine.deterministic=true",
            "foster.beta_boost=[0.1, 0.2, 0.3, 0.4]",
            "synthetic={num_classes = 4}",
        ],
    )
    assert (settings.seed, settings.epochs_scale, settings.method) == (7, 0.5, "replay")
    assert settings.data == "/some where/else"
    assert settings.engine.deterministic is True
    assert settings.synthetic.num_classes == 4
    assert foster_options(load_settings("digits", ["foster.beta_boost=[0.1, 0.2, 0.3, 0.4]"])).beta_boost == (
        0.1,
        0.2,
        0.3,
        0.4,
    )


def test_the_last_word_wins() -> None:
    assert load_settings("digits", ["seed=1", "seed=2"]).seed == 2
    assert load_settings("digits", ["data=one"], data="two").data == "two"
    assert load_settings("digits", ["data=one"], data=None).data == "one"


def test_none_takes_a_memory_budget_away() -> None:
    settings = load_settings("digits", ["memory_total=none", "memory_per_class=5"])
    assert (settings.memory_total, settings.memory_per_class) == (None, 5)
    assert "needs a memory" in refused("memory_total=none")
    assert load_settings("digits", ["memory_total=none", "method=finetune"]).memory_total is None


def test_a_part_of_a_schedule_is_changed_without_losing_the_rest(tmp_path: Path) -> None:
    options = foster_options(load_settings("digits", ["foster.boost.epochs=3"]))
    assert options.boost == FitSettings(epochs=3, learning_rate=0.1, weight_decay=5e-4)
    assert options.compress == FosterSettings().compress
    path = tmp_path / "mine.toml"
    path.write_text(
        'method = "replay"\ndataset = "digits"\nincrement = 2\nmemory_total = 50\n[replay.later]\nepochs = 9\n'
    )
    changed = load_settings(str(path), ["replay.later.learning_rate=0.5"]).options
    assert isinstance(changed, ReplaySettings)
    assert changed.later == ReplaySettings().later.model_copy(update={"epochs": 9, "learning_rate": 0.5})


def test_a_schedule_that_becomes_cosine_lets_its_milestones_go() -> None:
    options = load_settings("digits", ["method=replay", "replay.later.schedule=cosine"]).options
    assert isinstance(options, ReplaySettings)
    assert (options.later.schedule, options.later.milestones, options.later.epochs) == ("cosine", (), 70)


def test_a_schedule_is_stretched_with_its_milestones_and_keeps_an_epoch() -> None:
    schedule = FitSettings(epochs=200, schedule="milestones", milestones=(60, 120, 170))
    assert schedule.scaled(0.1) == FitSettings(epochs=20, schedule="milestones", milestones=(6, 12, 17))
    assert schedule.scaled(1) == schedule
    short = schedule.scaled(0.001)
    assert (short.epochs, short.milestones) == (1, (1,))
    options = FosterSettings().scaled(0.5)
    assert (options.first.epochs, options.boost.epochs, options.compress.epochs) == (100, 85, 65)


@pytest.mark.parametrize(
    ("override", "mentions"),
    [
        ("method=fostr", ["unknown method 'fostr'", "did you mean 'foster'?"]),
        ("method=[1]", ["unknown method '[1]'", "replay"]),
        ("dataset=digit", ["unknown dataset 'digit'", "did you mean 'digits'?"]),
        ("dataset={a=1}", ["unknown dataset", "cifar100"]),
        ("augmentation=plainn", ["unknown augmentation 'plainn'", "did you mean 'plain'?"]),
        ("sed=3", ["unknown key 'sed'", "did you mean 'seed'?"]),
        ("foster.bost.epochs=3", ["unknown key 'foster.bost.epochs'", "did you mean 'foster.boost.epochs'?"]),
        ("foster={boost={epoch=3}}", ["unknown key 'foster.boost.epoch'", "did you mean 'foster.boost.epochs'?"]),
        ("beta_boost=0.9", ["unknown key 'beta_boost'", "did you mean 'foster.beta_boost'?"]),
        ("replay.epochs=3", ["unknown key 'replay.epochs'", "did you mean 'replay.later.epochs'?"]),
        ("init_cls=3", ["unknown key 'init_cls'", "did you mean 'base_classes'?"]),
        ("memory_size=3", ["unknown key 'memory_size'", "did you mean 'memory_total'?"]),
        ("lr=0.1", ["unknown key 'lr'", "did you mean 'foster.first.learning_rate'?"]),
        ("options=3", ["unknown key 'options'"]),
        ("qqqq=1", ["unknown key 'qqqq'", "foster presets --show"]),
        ("seed", ["'seed' is not of the form key=value"]),
        ("=3", ["'=3' is not of the form key=value"]),
    ],
)
def test_an_unknown_name_gets_one_line_with_the_nearest_known_one(override: str, mentions: list[str]) -> None:
    line = refused(override)
    assert all(part in line for part in mentions), line


def test_the_suggested_key_belongs_to_the_method_in_use() -> None:
    assert "did you mean 'replay.later.epochs'?" in refused("method=replay", "epochs=3")


@pytest.mark.parametrize(
    ("override", "mentions"),
    [
        ("seed=-1", ["seed:", "greater than or equal to 0", "not -1"]),
        ("seed=3.5", ["seed:", "integer", "not 3.5"]),
        ("seed=4294967296", ["seed:", "not 4294967296"]),
        ("batch_size=1", ["batch_size:", "not 1"]),
        ("increment=0", ["increment:", "not 0"]),
        ("base_classes=11", ["base_classes", "11", "10 classes"]),
        ("validation_share=1", ["validation_share:", "not 1"]),
        ("epochs_scale=0", ["epochs_scale:", "not 0"]),
        ("epochs_scale=nan", ["epochs_scale:", "finite", "not nan"]),
        ("epochs_scale=inf", ["epochs_scale:", "finite", "not inf"]),
        ("epochs_scale=1e307", ["epochs_scale:", "not 1e+307"]),
        ("checkpoint_minutes=inf", ["checkpoint_minutes:", "finite"]),
        ("memory_total=0", ["memory_total:", "not 0"]),
        ("memory_total=9", ["memory_total", "9 exemplars", "10 classes"]),
        ("memory_per_class=3", ["memory_total = 200", "memory_per_class = 3", "not both"]),
        ("selection=hearding", ["selection:", "'herding' or 'random'", "not 'hearding'"]),
        ("device=gpu", ["device:", "not 'gpu'"]),
        ("backbone=3", ["backbone:", "not 3"]),
        ("engine.precision=float16", ["engine.precision:", "'bfloat16'"]),
        ("engine=3", ["engine:", "not 3"]),
        ("synthetic.num_classes=1", ["synthetic.num_classes:", "not 1"]),
        ("augmentation.flip=maybe", ["augmentation.flip:", "not 'maybe'"]),
        ("augmentation.resized_crop=[0.5, 2.0]", ["augmentation.resized_crop.1:", "not 2.0"]),
        ("augmentation=[1]", ["augmentation:", "not [1]"]),
        ("foster=3", ["foster:", "table", "not 3"]),
        ("foster.boost=3", ["foster.boost:", "not 3"]),
        ("foster.boost.epochs=0", ["foster.boost.epochs:", "not 0"]),
        ("foster.boost.learning_rate=nan", ["foster.boost.learning_rate:", "finite"]),
        ("foster.temperature=0", ["foster.temperature:", "not 0"]),
        ("foster.beta_compress=1.01", ["foster.beta_compress:", "not 1.01"]),
        ("foster.beta_boost=1.01", ["foster.beta_boost:", "1.01"]),
        ("foster.beta_boost=nan", ["foster.beta_boost:", "finite"]),
        ("foster.beta_boost=abc", ["foster.beta_boost:", "not 'abc'"]),
        ("foster.beta_boost=[0.9, 'x']", ["foster.beta_boost.1:", "not 'x'"]),
        ("foster.beta_boost=[0.9, 0.9, 0.9]", ["foster.beta_boost:", "3 values", "4 tasks"]),
        ("foster.gamma=papr", ["foster.gamma:", "'code' or 'paper'"]),
        ("foster.boost.schedule=milestones", ["foster.boost:", "milestones"]),
        ("foster.boost.milestones=[3]", ["foster.boost:", "milestones"]),
        ("replay.later.milestones=[]", ["replay.later:", "milestones"]),
        ("replay.later.milestones=[50, 30]", ["replay.later:", "rise", "[50, 30]"]),
        ("replay.later.milestones=[30, 30]", ["replay.later:", "rise"]),
        ("replay.later.milestones=[0, 30]", ["replay.later:", "from 1 on", "not 0"]),
        ("class_order=abc", ["class_order:", "not 'abc'"]),
        ("class_order=['1', '2', '1']", ["class_order:", "'1'", "more than once"]),
        ("class_order=['1', '2']", ["class_order:", "2 names", "10 classes"]),
    ],
)
def test_a_value_that_does_not_fit_gets_one_line_with_key_and_value(override: str, mentions: list[str]) -> None:
    line = refused(override)
    assert all(part in line for part in mentions), line
    assert "command line" in line or override == "base_classes=11"


def test_a_list_of_betas_longer_than_the_scenario_is_fine() -> None:
    settings = load_settings("digits", ["foster.beta_boost=[0.9, 0.8, 0.7, 0.6, 0.5]"])
    assert len(settings.task_sizes) - 1 < 5
    options = settings.options
    assert isinstance(options, FosterSettings)
    assert [options.beta_boost_of(task) for task in (1, 2, 3)] == [0.9, 0.8, 0.7]


@pytest.mark.parametrize(
    ("data", "mentions"),
    [
        (plain(dataset=None), "dataset: this key is missing (in here)"),
        (plain(increment=None), "increment: this key is missing (in here)"),
        (plain(increment="two"), "increment: input should be a valid integer"),
        (plain(foster={"first": {"epochs": 0}}), "foster.first.epochs:"),
        (plain(replay={"later": {"epochs": 0}}), "replay.later.epochs:"),
        (plain(seed=float("inf")), "seed:"),
    ],
)
def test_plain_data_is_checked_as_a_file_is(data: dict[str, Any], mentions: str) -> None:
    with pytest.raises(SettingsError) as caught:
        make_settings(data, "here")
    assert mentions in str(caught.value)


@pytest.mark.parametrize(
    ("content", "mentions"),
    [
        (b"dataset = ", "is not valid TOML"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b"a = " + b"[" * 5000, "is not valid TOML"),
        (b"sed = 3\n", "unknown key 'sed'; did you mean 'seed'?"),
        (b"[foster.bost]\nepochs = 3\n", "unknown key 'foster.bost'"),
        (b"[seed]\nx = 1\n", "unknown key 'seed.x'"),
        (b"seed = 1\n", "dataset: this key is missing"),
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
    assert "did you mean 'cifar100-b0-inc10'?" in refused(source="cifar100-b0-inc100")
    assert "cannot read settings file" in refused(source=str(tmp_path / "no.toml"))
    assert "cannot read settings file" in refused(source=str(tmp_path))
    assert refused(source="a" * 5000)


def test_a_folder_with_the_name_of_a_preset_does_not_hide_the_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_settings("digits").dataset == "digits"


def test_settings_cannot_be_changed() -> None:
    settings = load_settings("digits")
    with pytest.raises(ValueError, match="frozen"):
        settings.seed = 3


def test_a_hole_that_hides_the_whole_image_is_refused(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('dataset = "digits"\nincrement = 5\nmemory_total = 200\n')
    with pytest.raises(SettingsError, match="a black square of 16 x 16 hides images of 8 x 8 pixels; choose"):
        load_settings(str(mine))
    assert load_settings(str(mine), ["augmentation.cutout=8"]).augmentation_settings.cutout == 8
    assert load_settings(str(mine), ["method=replay"]).augmentation == "plain"
    with pytest.raises(SettingsError, match=r"augmentation\.cutout: .*multiple of 2, not 5"):
        load_settings(str(mine), ["augmentation.cutout=5"])


def test_a_run_does_not_train_on_its_own_later_images_without_their_labels() -> None:
    with pytest.raises(SettingsError, match=r"foster\.unlabeled: 'digits' is the run's own dataset: images of later"):
        load_settings("digits", ["foster.unlabeled=digits"])
    assert load_settings("digits", ["foster.unlabeled=cifar10"]).remarks == []


def test_what_may_not_be_meant_is_remarked() -> None:
    assert load_settings("cifar100-b0-inc10").remarks == []
    (betas,) = load_settings("cifar100-b0-inc10", ["base_classes=20", "increment=20"]).remarks
    assert betas.startswith("foster.beta_boost: 9 values, of which 4 tasks use the first ones")
    remarks = load_settings("cifar100-b0-inc10", ["method=replay", "replay.later.epochs=20"]).remarks
    assert remarks == ["replay.later.milestones: [30, 50] lie beyond its 20 epochs; the rate never falls"]
    for method in METHOD_SETTINGS:
        for preset in preset_names():
            assert load_settings(preset, [f"method={method}"]).remarks == [], (method, preset)


def test_where_files_lie_is_not_published() -> None:
    settings = load_settings("digits", ["foster.unlabeled=/home/me/photos"], data="/home/me/data")
    assert "data" not in settings.published()
    assert settings.published()["foster"]["unlabeled"] == "photos"
    assert load_settings("digits", ["foster.unlabeled=cifar10"]).published()["foster"]["unlabeled"] == "cifar10"
    assert settings.nested()["foster"]["unlabeled"] == "/home/me/photos"
