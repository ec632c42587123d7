import json
import sys
from itertools import product
from pathlib import Path

import pytest
from registries import registries_kept

from foster.errors import SettingsError
from foster.sweep.grid import plan_runs, split_values


def test_values_are_split_at_commas_outside_of_brackets_and_quotes():
    assert split_values("foster,replay") == ["foster", "replay"]
    assert split_values("[0.9,0.95], 0.97") == ["[0.9,0.95]", "0.97"]
    assert split_values("{a = [1, 2], b = 3}") == ["{a = [1, 2], b = 3}"]
    assert split_values("'a,b',\"c]\"") == ["'a,b'", '"c]"']
    assert split_values("") == [""]


def test_a_grid_is_a_nested_loop_with_the_last_key_innermost():
    runs = plan_runs("digits", ["method=foster,replay", "batch_size=64", "seed=1993,1"])
    assert [(run.settings.method, run.settings.seed, run.settings.batch_size) for run in runs] == [
        ("foster", 1993, 64),
        ("foster", 1, 64),
        ("replay", 1993, 64),
        ("replay", 1, 64),
    ]
    assert [run.name for run in runs] == [f"{run.settings.run_name},batch_size=64" for run in runs]
    assert len({run.name for run in runs}) == 4


def test_a_list_is_one_value_and_its_folder_has_a_plain_name():
    runs = plan_runs("digits", ["foster.beta_boost=[0.9,0.91,0.92,0.93],0.95"])
    assert [run.settings.options.beta_boost for run in runs] == [(0.9, 0.91, 0.92, 0.93), 0.95]
    assert [run.name.partition(",")[2] for run in runs] == [
        "foster.beta_boost=0.9_0.91_0.92_0.93",
        "foster.beta_boost=0.95",
    ]


def test_a_setting_of_one_method_does_not_multiply_the_runs_of_another():
    runs = plan_runs("digits", ["method=foster,replay", "foster.beta_compress=0.9,0.97"])
    assert [(run.settings.method, run.name.partition(",")[2]) for run in runs] == [
        ("foster", "foster.beta_compress=0.9"),
        ("foster", "foster.beta_compress=0.97"),
        ("replay", ""),
    ]


def test_a_run_has_the_name_that_foster_run_gives_it_and_what_else_was_given():
    (usual,) = plan_runs("digits", ["seed=7"])
    assert usual.name == usual.settings.run_name
    assert usual.name.endswith("-s7")
    (given,) = plan_runs("digits", ["seed=7", "epochs_scale=0.5", "data=/tmp", "replay.first.epochs=3"], data="/")
    assert given.name == f"{usual.name},epochs_scale=0.5"


def test_the_name_of_a_run_does_not_depend_on_what_else_a_sweep_trains():
    wide = {run.name for run in plan_runs("digits", ["method=foster,replay", "seed=1,2", "batch_size=64,128"])}
    narrow = {run.name for run in plan_runs("digits", ["method=replay", "seed=2", "batch_size=128"])}
    assert narrow < wide


def test_values_that_are_alike_in_plain_letters_have_folders_of_their_own():
    names = [run.name for run in plan_runs("digits", ["weights=a/b.safetensors,a_b.safetensors"])]
    assert len(set(names)) == 2
    assert all(name.startswith("digits-b0-inc2-foster-shift-s1993,weights=a_b.safetensors-") for name in names)


def test_where_the_data_are_is_in_the_names_only_if_it_is_varied():
    assert [run.name for run in plan_runs("digits", ["data=here"])] == ["digits-b0-inc2-foster-shift-s1993"]
    names = [run.name for run in plan_runs("digits", ["data=here,there"])]
    assert names == ["digits-b0-inc2-foster-shift-s1993,data=here", "digits-b0-inc2-foster-shift-s1993,data=there"]


def test_very_long_values_still_have_folders_of_their_own():
    orders = [json.dumps([f"{'long' * 9} {index + shift}" for index in range(10)]) for shift in (0, 1)]
    names = [run.name for run in plan_runs("digits", [f"class_order={','.join(orders)}"])]
    assert len(set(names)) == 2
    assert max(map(len, names)) < 200


@pytest.mark.parametrize(
    ("overrides", "fact"),
    [
        (["seed=1,,2"], "seed"),
        (["seed=1", "seed=2"], "seed"),
        (["method=replay", "foster.beta_compress=0.9,0.97"], "beta_compress"),
        (["method=finetune,lwf", "memory_total=50,60"], "memory_total"),
        (["foster.beta_boost=[0.9,0.95"], "]"),
        (["seed"], "key=value"),
        (["method=foster,replai"], "'replay'"),
        (["foster.beta_bost=0.9,0.95"], "'foster.beta_boost'"),
    ],
)
def test_a_wrong_grid_is_refused_in_one_line(overrides: list[str], fact: str):
    with pytest.raises(SettingsError) as caught:
        plan_runs("digits", overrides)
    assert fact in str(caught.value)
    assert "\n" not in str(caught.value)


def test_recipes_are_laid_over_each_other_or_varied(tmp_path: Path):
    (mine := tmp_path / "mine.toml").write_text("[foster]\nboost_branches = 3\n")
    (both,) = plan_runs("digits", ["recipe=plus", f"recipe={mine}"])
    assert both.settings.options.boost_branches == 3
    assert both.settings.options.compress_cutmix == 1, "as in plus"
    names = [run.name for run in plan_runs("digits", [f"recipe=plus,{mine}"])]
    assert names == [f"digits-b0-inc2-foster-{recipe}-shift-s1993" for recipe in ("plus", "mine")]


def test_two_ways_to_write_a_value_are_one_run():
    assert len(plan_runs("digits", ["seed=1,01", "method=foster,foster"])) == 1


def test_ranges_are_drawn_from_together_the_same_each_time_and_more_samples_add_to_them():
    grid = ["foster.boost.learning_rate=log:0.01..0.3", "batch_size=32..128", "seed=1,2"]

    def drawn(samples: int) -> list[tuple[int, float, int]]:
        settings = [run.settings for run in plan_runs("digits", grid, samples=samples)]
        return [(one.seed, one.options.boost.learning_rate, one.batch_size) for one in settings]

    assert len(set(drawn(5))) == 10
    assert drawn(3)[:3] == drawn(5)[:3] == [(1, rate, size) for _, rate, size in drawn(5)[5:8]]
    assert all(0.01 <= rate <= 0.3 and 32 <= size <= 128 for _, rate, size in drawn(5))
    assert sum(rate < 0.055 for _, rate, _ in drawn(40)) in range(25, 56), "half of 80, evenly in the logarithm"
    assert {(rate < 0.055, size < 80) for _, rate, size in drawn(40)} == set(product((True, False), repeat=2))


@pytest.mark.parametrize(
    ("override", "samples", "message"),
    [
        ("batch_size=32..128", 0, "--samples"),
        ("batch_size=32", 5, "--samples"),
        ("foster.temperature=log:0..2", 5, "from a lower to a higher number above 0"),
        ("batch_size=128..32", 5, "from a lower to a higher number"),
    ],
)
def test_a_wrong_range_is_refused(override: str, samples: int, message: str):
    with pytest.raises(SettingsError, match=message):
        plan_runs("digits", [override], samples=samples)


def test_a_baseline_does_not_depend_on_the_plug_in_of_the_method_that_it_is_compared_with(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    ewc = str(Path(__file__).parents[2] / "docs" / "examples" / "ewc.py")
    with registries_kept():
        theirs, ours = plan_runs("digits", ["method=ewc,finetune"], plugins=[ewc])
    sys.modules.pop("ewc", None)
    assert (theirs.settings.plugins, ours.settings.plugins) == ((ewc,), ())
