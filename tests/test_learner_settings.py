import subprocess
import sys

import pytest

from foster.config import AUGMENTATIONS
from foster.errors import SettingsError
from foster.learner_settings import (
    PRESETS,
    LearnerSettings,
    augmentation_for,
    backbone_for,
    batch_size_for,
    image_side_for,
    learner_keys,
    learner_settings,
    make_learner_settings,
    resize_rule_for,
)
from foster.method_settings import FosterSettings


def test_settings_survive_the_way_into_a_bundle_and_back() -> None:
    settings = learner_settings(
        ["foster.boost.epochs=3", "image_size=24x32", "epochs_scale=0.5", "augmentation.flip=true"], memory_total=7
    )
    assert make_learner_settings(settings.nested(), "a bundle") == settings


def test_what_belongs_to_the_machine_stays_on_the_machine() -> None:
    nested = learner_settings(["device=cpu", "max_unreadable=3", "foster.unlabeled=/home/me"]).nested()
    assert not {"device", "engine", "max_unreadable"} & nested.keys()
    assert "/home/me" not in str(nested)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("epoch_scale=1", "unknown key 'epoch_scale'; did you mean 'epochs_scale'?"),
        ("beta_boost=0.9", "unknown key 'beta_boost'; did you mean 'foster.beta_boost'?"),
        ("dataset=digits", "unknown key 'dataset'; 'foster learn --keys' prints all keys"),
        ("method=fster", "unknown method 'fster'; did you mean 'foster'?"),
        ("preset=slow", "unknown preset 'slow'; choose from fast, paper, standard"),
        ("augmentation=blur", "unknown augmentation 'blur'"),
        ("image_size=big", "image_size: this is a side such as 64"),
        ("validation_share=0.9", "validation_share: input should be less than or equal to 0.5"),
        ("foster.first.epochs=0", "foster.first.epochs: input should be greater"),
        ("device=gpu", "device"),
        ("memory_total", "not of the form key=value"),
    ],
)
def test_a_wrong_setting_is_one_line_that_helps(override: str, message: str) -> None:
    with pytest.raises(SettingsError) as error:
        learner_settings([override])
    assert message in str(error.value)


def test_unknown_keywords_are_refused_as_unknown_keys_are() -> None:
    with pytest.raises(SettingsError, match="unknown key 'epoch_scale'; did you mean 'epochs_scale'"):
        learner_settings(epoch_scale=1)


def test_one_budget_and_not_two() -> None:
    with pytest.raises(SettingsError, match="set one budget, not both"):
        learner_settings(memory_total=10, memory_per_class=2)
    base = learner_settings(memory_total=10)
    changed = learner_settings(base=base, memory_per_class=2)
    assert (changed.memory_total, changed.memory_per_class) == (None, 2)


def test_a_budget_is_divided_among_the_classes() -> None:
    assert learner_settings().quota(10) == 200
    assert learner_settings(memory_total=25).quota(10) == 2
    assert learner_settings(memory_per_class=3).quota(1000) == 3
    assert learner_settings(method="joint").quota(10) is None
    with pytest.raises(SettingsError, match="5 exemplars cannot hold one of each of 6 classes"):
        learner_settings(memory_total=5).quota(6)


def test_a_later_learn_changes_what_may_change_and_nothing_else() -> None:
    base = learner_settings(backbone="resnet8", image_size=8, epochs_scale=0.5, foster={"beta_boost": 0.9})
    later = learner_settings(["foster.boost.epochs=3"], base=base)
    assert isinstance(later.options, FosterSettings)
    assert (later.options.beta_boost, later.options.boost.epochs) == (0.9, 3)
    assert later.epochs_scale == 0.5
    for override in ("backbone=resnet32", "image_size=16", "method=replay", "resize=crop", "foster.compression=false"):
        with pytest.raises(SettingsError, match="from its first learn, which cannot become"):
            learner_settings([override], base=base)
    assert learner_settings(["image_size=8"], base=base).image_size == (8, 8)
    assert learner_settings(["backbone=resnet32"], base=base, has_learned=False).backbone == "resnet32"


def test_a_preset_given_later_takes_the_place_of_earlier_epochs() -> None:
    base = learner_settings(epochs_scale=0.5, validation_share=0.3)
    later = learner_settings(base=base, preset="paper")
    assert later.epochs_factor(1000) == 1.0
    assert later.held_out_share == 0.0
    assert learner_settings(["epochs_scale=0.1"], base=base, preset="paper").epochs_factor(1000) == 0.1


def test_the_paper_preset_is_the_papers_schedule() -> None:
    options = learner_settings(preset="paper").scaled_options(steps_per_epoch=1, is_pretrained=False)
    assert isinstance(options, FosterSettings)
    assert (options.first.epochs, options.boost.epochs, options.compress.epochs) == (200, 170, 130)
    assert options.first.learning_rate == 0.1


def test_small_sets_are_seen_more_often_but_never_more_than_in_the_paper() -> None:
    fast = learner_settings(preset="fast")
    assert fast.epochs_factor(1000) == PRESETS["fast"].epochs_scale
    assert fast.epochs_factor(10) == pytest.approx(600 / (10 * 200))
    assert fast.epochs_factor(1) == 1.0
    assert learner_settings(preset="fast", epochs_scale=0.01).epochs_factor(1) == 0.01


def test_pretrained_backbones_are_trained_gently() -> None:
    settings = learner_settings()
    assert settings.scaled_options(100, is_pretrained=True).first.learning_rate == pytest.approx(0.01)
    given = learner_settings(learning_rate_scale=0.5)
    assert given.scaled_options(100, is_pretrained=True).first.learning_rate == pytest.approx(0.05)


def test_defaults_follow_the_images() -> None:
    sides = {5: 8, 8: 8, 28: 28, 30: 32, 64: 64, 65: 96, 120: 128, 150: 160, 200: 224, 4000: 224}
    assert {side: image_side_for(side) for side in sides} == sides
    assert [backbone_for((side, side)) for side in (8, 64, 65)] == ["resnet32", "resnet32", "resnet18"]
    assert [resize_rule_for((side, side)) for side in (64, 96)] == ["stretch", "crop"]
    assert [augmentation_for((side, side)) for side in (8, 16, 32, 64, 96)] == [
        "shift",
        "plain",
        "auto",
        "auto",
        "photo",
    ]
    assert {augmentation_for((side, side)) for side in range(4, 300)} <= AUGMENTATIONS.keys()
    assert [batch_size_for(count, (32, 32)) for count in (10, 640, 2560, 50_000)] == [16, 32, 128, 128]
    assert batch_size_for(50_000, (224, 224)) == 64


def test_every_key_has_a_description() -> None:
    for name, field in LearnerSettings.model_fields.items():
        assert field.description or name in ("engine", "options"), name
    assert {"foster.beta_boost", "engine.threads", "augmentation.flip", "memory_total"} <= set(learner_keys())


def test_settings_and_the_package_itself_do_not_import_torch() -> None:
    names = "foster, foster.learner_settings, foster.bundle.promotion, foster.cli"
    code = f"import {names}, sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
