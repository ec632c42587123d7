import pytest

from foster.errors import SettingsError
from foster.settings.augmentation import AUGMENTATIONS, Augmentation
from foster.settings.base import flat, make
from foster.settings.learner import LearnerSettings, learner_settings
from foster.settings.learner_defaults import (
    PRESETS,
)


def test_settings_survive_the_way_into_a_bundle_and_back() -> None:
    settings = learner_settings(
        [
            "foster.boost.epochs=3",
            "image_size=24x32",
            "epochs_scale=0.5",
            "augmentation=photo",
            "augmentation.cutout=4",
        ],
        memory_total=7,
    )
    assert make(LearnerSettings, settings.nested(), "a bundle") == settings


def test_what_belongs_to_the_machine_stays_on_the_machine() -> None:
    private = ["device=cpu", "max_unreadable=3", "weights=/home/me/w.safetensors"]
    nested = learner_settings(private).nested()
    assert not {"device", "engine", "max_unreadable"} & nested.keys()
    assert "/home/me" not in str(nested)
    assert nested["weights"] == "w.safetensors"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("epoch_scale=1", "unknown key 'epoch_scale'; did you mean 'epochs_scale'?"),
        ("epochs=3", "foster.first.epochs"),
        ("dataset=digits", "unknown key 'dataset'; 'foster learn --keys' prints all keys"),
        ("method=fster", "unknown method 'fster'; did you mean 'foster'?"),
        ("training=slow", "unknown training 'slow'; choose from fast, paper, standard"),
        ("augmentation=blur", "unknown augmentation 'blur'"),
        ("image_size=big", "image_size: this is a side such as 64"),
        ("image_size=32x5000", "image_size: a side must lie in 8 to 1024, not 32 x 5000"),
    ],
)
def test_a_wrong_setting_is_one_line_that_helps(override: str, message: str) -> None:
    with pytest.raises(SettingsError) as error:
        learner_settings([override])
    assert message in str(error.value)


def test_one_budget_and_not_two() -> None:
    with pytest.raises(SettingsError, match=r"memory_total.*memory_per_class"):
        learner_settings(memory_total=10, memory_per_class=2)
    base = learner_settings(memory_total=10)
    changed = learner_settings(base=base, memory_per_class=2)
    assert (changed.memory_total, changed.memory_per_class) == (None, 2)


@pytest.mark.parametrize("key", ["memory_total", "memory_per_class"])
def test_none_takes_a_budget_of_the_base_away(key: str) -> None:
    base = learner_settings([f"{key}=30"])
    changed = learner_settings([f"{key}=none"], base=base)
    assert (changed.memory_total, changed.memory_per_class) == (None, None)
    assert changed.quota(10) == 200


def test_changes_leave_everything_else_as_it_was() -> None:
    base = learner_settings(
        ["device=cpu", "engine.threads=2", "engine.compile=off", "checkpoint_minutes=0", "weights=here/w.safetensors"],
        max_unreadable=1000,
        foster={"beta_boost": 0.9},
    )
    changed = learner_settings(["foster.boost.epochs=3"], base=base, seed=2, engine={"threads": 1})
    before, after = flat(base.complete()), flat(changed.complete())
    assert {key: value for key, value in after.items() if value != before[key]} == {
        "seed": 2,
        "engine.threads": 1,
        "foster.boost.epochs": 3,
    }
    assert (changed.max_unreadable, changed.weights) == (1000, "here/w.safetensors")
    assert learner_settings(base=base) == base


def test_a_part_changes_the_augmentation_that_is_named() -> None:
    auto = AUGMENTATIONS["auto"]
    without_flip = auto.model_copy(update={"flip": False})
    for order in (["augmentation=auto", "augmentation.flip=false"], ["augmentation.flip=false", "augmentation=auto"]):
        assert learner_settings(order).augmentation == without_flip
    base = learner_settings(augmentation="auto")
    assert learner_settings(["augmentation.flip=false"], base=base).augmentation == without_flip
    changed = learner_settings(base=base, augmentation={"flip": False})
    assert changed.augmentation == without_flip
    assert learner_settings(["augmentation.flip=true"], base=changed).augmentation == auto
    assert learner_settings(["augmentation=plain"], base=changed).augmentation == "plain"
    mine = {"crop_padding": 2}
    assert learner_settings(["augmentation.cutout=4"], augmentation=mine).augmentation == Augmentation(
        crop_padding=2, cutout=4
    )
    assert mine == {"crop_padding": 2}


def test_an_augmentation_that_nobody_named_has_no_part_to_change() -> None:
    for base in (None, learner_settings()):
        with pytest.raises(SettingsError, match=r"augmentation\.flip=false'.*'by_size'.* auto, "):
            learner_settings(["augmentation.flip=false"], base=base)
    with pytest.raises(SettingsError, match="'by_size'"):
        learner_settings(base=learner_settings(), augmentation={"flip": False})
    with pytest.raises(SettingsError, match=r"'plainn'.*'plain'"):
        learner_settings(["augmentation=plainn", "augmentation.flip=false"])


def test_a_budget_is_divided_among_the_classes() -> None:
    assert learner_settings().quota(10) == 200
    assert learner_settings(memory_total=28).quota(10) == 2
    assert learner_settings(memory_per_class=3).quota(1000) == 3
    assert learner_settings(method="joint").quota(10) is None
    with pytest.raises(SettingsError, match=r"5 exemplars.*6 classes"):
        learner_settings(memory_total=5).quota(6)


def test_a_later_learn_changes_what_may_change_and_nothing_else() -> None:
    base = learner_settings(backbone="resnet8", image_size=8, epochs_scale=0.5, foster={"beta_boost": 0.9})
    later = learner_settings(["foster.boost.epochs=3"], base=base)
    assert (later.options.beta_boost, later.options.boost.epochs) == (0.9, 3)
    assert later.epochs_scale == 0.5
    for override in ("backbone=resnet32", "image_size=16", "method=replay", "foster.compression=false"):
        with pytest.raises(SettingsError, match="first learn"):
            learner_settings([override], base=base)
    assert learner_settings(["image_size=8"], base=base).image_size == (8, 8)
    pretrained = learner_settings(["weights=w.safetensors"])
    assert learner_settings(["weights=elsewhere/w.safetensors"], base=pretrained).weights == "elsewhere/w.safetensors"
    with pytest.raises(SettingsError, match=r"weights: .*w\.safetensors"):
        learner_settings(["weights=other.safetensors"], base=pretrained)
    assert learner_settings(["backbone=resnet32"], base=base, has_learned=False).backbone == "resnet32"


def test_a_preset_given_later_takes_the_place_of_earlier_epochs() -> None:
    base = learner_settings(epochs_scale=0.5, validation_share=0.3)
    later = learner_settings(base=base, training="paper")
    assert later.epochs_factor(1000) == 1.0
    assert later.held_out_share == 0.0
    assert learner_settings(["epochs_scale=0.1"], base=base, training="paper").epochs_factor(1000) == 0.1


def test_small_sets_are_seen_more_often_but_never_more_than_in_the_paper() -> None:
    fast = learner_settings(training="fast")
    assert fast.epochs_factor(1000) == PRESETS["fast"].from_scratch.epochs_scale
    assert fast.epochs_factor(10) == pytest.approx(600 / (10 * 200))
    assert fast.epochs_factor(1) == 1.0
    assert fast.epochs_factor(1000, is_pretrained=True) == PRESETS["fast"].pretrained.epochs_scale
    assert fast.epochs_factor(10, is_pretrained=True) == pytest.approx(60 / (10 * 200))
    assert learner_settings(training="fast", epochs_scale=0.01).epochs_factor(1) == 0.01


def test_pretrained_backbones_are_trained_gently() -> None:
    settings = learner_settings()
    assert settings.scaled_options(100, is_pretrained=True, batch_size=16).first.learning_rate == pytest.approx(0.01)
    given = learner_settings(learning_rate_scale=0.5)
    assert given.scaled_options(100, is_pretrained=True, batch_size=16).first.learning_rate == pytest.approx(0.05)
    assert given.scaled_options(100, is_pretrained=True, batch_size=16).first.max_gradient == 1
    assert given.scaled_options(100, is_pretrained=False, batch_size=16).first.max_gradient is None
    free = learner_settings(["foster.first.max_gradient=0"])
    assert free.scaled_options(100, is_pretrained=True, batch_size=16).first.max_gradient == 0


@pytest.mark.parametrize(
    ("given", "pretrained", "from_scratch"),
    [("", (0.8, 0.94), (0.95, 0.97)), ("foster.beta_boost=0.9 foster.beta_compress=0", (0.9, 0), (0.9, 0))],
)
def test_a_pretrained_learner_corrects_less_unless_told_otherwise(
    given: str, pretrained: tuple[float, float], from_scratch: tuple[float, float]
) -> None:
    def betas(is_pretrained: bool) -> tuple[float, float]:
        options = learner_settings(given.split()).scaled_options(100, is_pretrained, batch_size=16)
        return options.beta_boost_of(1), options.beta_of_compression

    assert (betas(True), betas(False)) == (pretrained, from_scratch)


def test_small_batches_take_small_steps() -> None:
    settings = learner_settings(["method=bic"])
    options = settings.scaled_options(100, is_pretrained=False, batch_size=16)
    assert [options.first.learning_rate, options.correction.learning_rate] == pytest.approx([0.0125, 0.0125])
    assert settings.scaled_options(100, is_pretrained=False, batch_size=512).first.learning_rate == 0.1


def test_an_override_of_another_method_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"wa\.temperature .*the method is auto .on the command line.$"):
        learner_settings(["wa.temperature=3"])
