from dataclasses import replace
from pathlib import Path

import pytest

from foster.errors import SettingsError
from foster.settings.toml import packaged_names
from foster.studies.study import PlannedStudy, distinct_runs, load_study, plan_studies, plan_study


@pytest.mark.parametrize("name", packaged_names("studies"))
@pytest.mark.parametrize("preset", [None, "digits"])
def test_every_study_can_be_planned_as_published_and_on_digits(name: str, preset: str | None):
    study = load_study(name)
    planned = plan_study(study, preset)
    runs = [run for group in planned.values() for run in group]
    presets = 1 if preset else len(study.presets)
    assert len({run.settings.toml() for run in runs}) == len(runs) == presets * len(study.variants)
    assert {run.settings.scenario for run in runs} == ({"digits-b0-inc2"} if preset else set(study.presets))
    has_numbers = any(variant.paper for variant in study.variants)
    assert study.claims or has_numbers, "a study has a claim, or a number of the paper for a variant"


def test_the_tables_of_the_paper_have_every_method_with_its_published_augmentation():
    planned = plan_study(load_study("table-1"))
    augmentations = {name: {run.settings.augmentation_name for run in runs} for name, runs in planned.items()}
    assert augmentations == {name: {"auto"} if name in ("foster", "joint") else {"plain"} for name in planned}
    assert [len(runs) for runs in planned.values()] == [4] * 8


def test_a_part_of_a_study_is_named_by_methods_and_protocols():
    study, protocols = load_study("table-1"), ["cifar100-b0-inc10", "cifar100-b50-inc5"]
    planned = plan_study(study, None, ["methods=foster,der", f"protocols={','.join(protocols)}"])
    assert {name: [run.settings.scenario for run in runs] for name, runs in planned.items()} == {
        "der": protocols,
        "foster": protocols,
    }
    for part, name in (("methods", "slda"), ("protocols", "digits")):
        with pytest.raises(SettingsError, match=f"{part}: .*'{name}'"):
            plan_study(study, None, [f"{part}={name}"])


def test_the_grids_are_those_of_the_paper():
    betas = plan_study(load_study("beta"))
    assert [run.settings.options.beta_boost for (run,) in betas.values()] == [0.93, 0.95, 0.97, 0.99, 0.995, 0.999]
    kept = plan_study(load_study("exemplars"))
    assert [run.settings.memory_per_class for (run,) in kept.values()] == [5, 10, 20, 50, 100, 200]
    parts = {
        name: (o.alignment, o.feature_enhancement, o.distillation, o.compress_with)
        for name, (run,) in plan_study(load_study("components")).items()
        for o in (run.settings.options,)
    }
    assert len(set(parts.values())) == 7
    assert parts["all parts"] == ("logits", True, True, "balanced")
    assert parts["without feature enhancement"] == ("logits", False, False, "balanced")


def test_seeds_multiply_the_runs_and_what_a_study_varies_cannot_be_given():
    planned = plan_study(load_study("old-head"), "digits", ["seed=1,2,3"])
    assert [len(group) for group in planned.values()] == [3, 3, 3]
    with pytest.raises(SettingsError, match=r"foster.new_on_old .*'FT'"):
        plan_study(load_study("old-head"), "digits", ["foster.new_on_old=zero"])


def test_a_setting_of_the_user_replaces_that_of_all_variants(tmp_path: Path):
    text = 'title = "a"\npresets = ["digits"]\nbase = ["epochs_scale=0.5", "seed=3"]\nvariants = [{name = "x"}]'
    ((run,),) = plan_study(load_study(written_study(tmp_path, text)), None, ["epochs_scale=0.25"]).values()
    assert (run.settings.epochs_scale, run.settings.seed) == (0.25, 3)


def test_what_studies_share_is_one_run_with_the_shortest_of_its_names():
    studies = plan_studies(["exemplars", "components", "old-head"])
    runs = distinct_runs(studies)
    assert len(runs) == 6 + 7 + 3 - 2
    assert runs[2].name == "cifar100-b50-inc10-foster-s1993", "20 exemplars of each class, and all as usual"
    (same,) = studies[1].planned["all parts"]
    assert runs[2].settings == same.settings
    other = [replace(same, settings=same.settings.model_copy(update={"seed": seed})) for seed in (1, 2)]
    assert len({run.name for run in distinct_runs([PlannedStudy("", studies[0].study, {"": other})])}) == 2


def written_study(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


def test_a_study_of_ones_own_is_a_small_file(tmp_path: Path):
    source = written_study(
        tmp_path,
        """
        title = "Temperature"
        presets = ["digits"]
        [[variants]]
        name = "2"
        [[variants]]
        name = "4"
        set = ["foster.temperature=4"]
        """,
    )
    planned = plan_study(load_study(source))
    assert [run.settings.options.temperature for (run,) in planned.values()] == [2, 4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = ", "is not valid TOML"),
        ('title = "a"\npresets = ["digits"]', "variants"),
        ('title = "a"\npresets = ["digits"]\nnonsense = 1\nvariants = [{name = "x"}]', "nonsense"),
        ('title = "a"\npresets = ["digits"]\nvariants = [{name = "x"}, {name = "x"}]', "two variants are called 'x'"),
        (
            'title = "a"\npresets = ["digits"]\nvariants = [{name = "one"}]\nclaims = [{text = "t", first = "onne"}]',
            "a claim is about 'onne', which is no variant; did you mean 'one'",
        ),
        ('title = "a"\npresets = ["digits"]\ndraw = "axis"\nvariants = [{name = "x"}]', "'at'"),
        ('title = "a"\npresets = ["digits"]\nvariants = [{name = "x", paper = {digit = 1}}]', "did you mean 'digits'"),
    ],
)
def test_a_wrong_file_is_one_line(text: str, message: str, tmp_path: Path):
    with pytest.raises(SettingsError, match=message):
        load_study(written_study(tmp_path, text))


def test_wrong_settings_and_an_unknown_study_are_refused(tmp_path: Path):
    wrong = 'title = "a"\npresets = ["digits"]\nvariants = [{name = "x", set = ["foster.temprature=2"]}]'
    with pytest.raises(SettingsError, match=r"foster\.temperature.*variant 'x'"):
        plan_study(load_study(written_study(tmp_path, wrong)))
    with pytest.raises(SettingsError, match="'beta'"):
        load_study("betta")
