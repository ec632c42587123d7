from typing import Any

import pytest

from foster.experiment.results import read_result
from foster.reports.groups import by_scenario, comparable_groups, titled
from foster.reports.tables import accuracy_grids, run_records, summary_grids, summary_records
from foster.settings.experiment import load_settings
from foster.settings.methods import METHOD_SETTINGS

PRESETS_OF_CIFAR = ("cifar100-b50-inc10", "cifar100-b50-inc1")


def settings(*overrides: str, **changes: Any) -> dict[str, Any]:
    """The settings of the preset `digits`, as a results file has them."""
    return load_settings("digits", list(overrides)).published() | changes


def groups_of(*paths):
    (groups,) = by_scenario([read_result(path) for path in paths], across_orders=True).values()
    return groups


def test_runs_that_differ_in_seed_and_device_alone_belong_together(write_run):
    first = write_run("a", seed=7, settings=settings("seed=7", "device=cuda"))
    second = write_run("b", seed=3, settings=settings("seed=3", "device=cpu"))
    (group,) = groups_of(first, second)
    assert [run.seed for run in group.runs] == [3, 7]
    assert group.name == "foster"


def test_runs_with_other_last_batches_are_apart(write_run):
    runs = (settings("smallest_batch=2"), settings(), settings("smallest_batch=16"))
    groups = groups_of(*(write_run(str(k), seed=k, settings=each | {"seed": k}) for k, each in enumerate(runs)))
    assert {group.name for group in groups} == {"foster smallest_batch=2", "foster", "foster smallest_batch=16"}


@pytest.mark.parametrize("method", METHOD_SETTINGS)
def test_a_run_of_a_preset_as_it_is_has_no_changes(write_run, method):
    (group,) = groups_of(write_run("a", method=method, settings=settings(f"method={method}")))
    assert (group.name, group.changes) == (method, ())


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (("foster.beta_boost=0.9",), ("beta_boost=0.9",)),
        (("foster.compress.epochs=7", "foster.gamma=paper"), ("compress.epochs=7", "gamma=paper")),
        (("memory_total=none", "memory_per_class=20"), ("memory_per_class=20",)),
        (("recipe=plus",), ()),
        (("recipe=plus", "foster.boost_branches=3"), ("boost_branches=3",)),
        (("foster.beta_boost=[0.9, 0.8, 0.7, 0.6, 0.5]",), ("beta_boost=[0.9, 0.8, ..., 0.5]",)),
        (("augmentation.flip=true",), ("augmentation.crop_padding=1", "augmentation.flip=true")),
        (("seed=5", "order_seed=7", "engine.threads=2", "keep_networks=true"), ()),
    ],
)
def test_a_single_run_tells_what_differs_from_its_preset_in_table_records_and_title(write_run, overrides, told):
    result = read_result(write_run("a", settings=settings(*overrides)))
    ((group,),) = by_scenario([result]).values()
    assert group.changes == told
    (grid,) = summary_grids([result])
    (record,), (of_run,) = summary_records([result]), run_records([result])
    recipe = result.recipe
    assert record["settings"] == " ".join(filter(None, (recipe, *told)))
    for change in told:
        assert change in grid.title or change in grid.rows[0][0]
    keys = {key for key in record if key not in summary_records([read_result(write_run("b", settings=settings()))])[0]}
    assert len(keys) >= len(told)
    assert all(of_run[key] == record[key] for key in keys)


def test_changes_that_all_runs_share_stand_in_the_title_once(write_run):
    shared = ("epochs_scale=0.5", "batch_size=16", "memory_total=30")
    runs = [
        write_run(method, method=method, accuracy=(90, last), settings=settings(f"method={method}", *shared, *changes))
        for method, last, changes in (("foster", 80, ["foster.gamma=paper"]), ("wa", 70, []), ("finetune", 60, []))
    ]
    groups = groups_of(*runs)
    assert [group.name for group in groups] == ["foster gamma=paper", "wa", "finetune"], "finetune has no memory"
    assert titled("digits", groups) == "digits, batch_size=16, epochs_scale=0.5, memory_total=30"
    groups = groups_of(*runs, write_run("d", method="der", accuracy=(90, 50), settings=settings("method=der")))
    assert groups[1].name == "wa batch_size=16 epochs_scale=0.5 memory_total=30", "not all share them"


def test_without_a_preset_the_defaults_are_compared_with(write_run):
    given = load_settings(None, ["dataset=synthetic", "increment=2", "memory_total=20", "foster.gamma=paper"])
    (group,) = groups_of(write_run("a", scenario=given.scenario, settings=given.published()))
    assert group.changes == ("gamma=paper", "memory_total=20")
    assert group.name == "foster gamma=paper"


@pytest.mark.parametrize("preset", ["digits", "cifar100-b50-inc10"])
def test_other_tasks_than_those_of_a_preset_are_compared_with_the_nearest_preset_of_the_dataset(write_run, preset):
    given = load_settings(preset, ["increment=3", "foster.gamma=paper"])
    (group,) = groups_of(write_run("a", scenario=given.scenario, settings=given.published()))
    assert group.changes == ("gamma=paper",)


def test_runs_of_a_scenario_without_a_preset_that_are_near_to_different_presets_are_apart(write_run):
    given = [load_settings(preset, ["base_classes=40", "increment=3"]) for preset in PRESETS_OF_CIFAR]
    (scenario,) = {each.scenario for each in given}
    runs = [write_run(str(k), scenario=scenario, settings=each.published()) for k, each in enumerate(given)]
    assert len(groups_of(*runs)) == len(runs)


def test_the_value_that_auto_stands_for_is_no_change(write_run):
    both = [settings(f"foster.beta_boost={value}", "foster.beta_compress=auto") for value in ("auto", 0.95)]
    (group,) = groups_of(*(write_run(str(seed), seed=seed, settings=each) for seed, each in enumerate(both)))
    assert (len(group.runs), group.changes) == (2, ())


def test_a_method_that_is_not_known_here_tells_the_settings_in_which_its_runs_differ(write_run):
    all_settings = [settings() | {"stranger": {"rate": rate, "depth": 3}} for rate in (1, 2)]
    groups = groups_of(*(write_run(str(k), method="stranger", settings=each) for k, each in enumerate(all_settings)))
    assert {group.name for group in groups} == {"stranger rate=1", "stranger rate=2"}


def test_defaults_of_an_unknown_method_on_an_unknown_dataset_are_not_told(write_run):
    facts = {"dataset": "mine", "stranger": {"first": {"epochs": 100, "schedule": "cosine"}}}
    (group,) = groups_of(write_run("a", method="stranger", scenario="mine-b0-inc2", settings=facts))
    assert group.name == "stranger"


def test_runs_of_an_edited_plug_in_are_apart_from_those_before(write_run):
    paths = [
        write_run(str(seed), method="stranger", seed=seed, environment={"device": "CPU", "plugins": {"lab": version}})
        for seed, version in ((1, "a" * 64), (2, "b" * 64), (3, "b" * 64))
    ]
    assert {group.name: len(group.runs) for group in groups_of(*paths)} == {
        f"stranger plugins.lab={'a' * 8}": 1,
        f"stranger plugins.lab={'b' * 8}": 2,
    }
    assert [group.name for group in groups_of(*paths[1:])] == ["stranger"]


def test_runs_of_several_processes_are_apart_from_those_of_one(write_run):
    paths = [
        write_run(str(seed), seed=seed, settings=settings(f"seed={seed}"), environment={"device": "CPU", **processes})
        for seed, processes in ((1, {"processes": 1}), (2, {"processes": 2}), (3, {}))
    ]
    assert {group.name: len(group.runs) for group in groups_of(*paths)} == {"foster": 2, "foster processes=2": 1}


@pytest.mark.parametrize(
    "other",
    [
        {"settings": {"recipe": "my.toml"}},
        {"settings": {"recipe": "plus"}},
        {"task_sizes": (1, 3)},
        {"classes": ["cat", "dog", "fox", "owl"]},
        {"method": "wa"},
        {"augmentation": "auto"},
        {"evaluated_on": "validation"},
    ],
)
def test_runs_of_another_kind_are_never_averaged(write_run, other):
    usual = {"task_sizes": (2, 2), "classes": ["a", "b", "c", "d"]}
    groups = groups_of(write_run("a", seed=1, **usual), write_run("b", seed=2, **(usual | other)))
    assert [len(group.runs) for group in groups] == [1, 1]


def test_methods_and_augmentations_are_apart_with_the_best_average_first(write_run):
    groups = groups_of(
        write_run("a", accuracy=(90, 20), method="finetune"),
        write_run("b", accuracy=(90, 60), augmentation="plain"),
        write_run("c", accuracy=(90, 80), augmentation="auto"),
    )
    assert [(group.name, group.augmentation) for group in groups] == [
        ("foster", "auto"),
        ("foster", "plain"),
        ("finetune", "plain"),
    ]


def test_unfinished_runs_and_validation_accuracies_stand_apart(write_run):
    groups = groups_of(
        write_run("a", accuracy=(90, 80)),
        write_run("b", accuracy=(90,), task_sizes=(2,), finished=False),
        write_run("c", accuracy=(90, 70), evaluated_on="validation"),
    )
    assert {group.name for group in groups} == {
        "foster",
        "foster (unfinished, 1 task)",
        "foster (on validation images)",
    }


def test_the_same_recipe_and_seed_counts_once_and_the_tables_say_so_below_them(write_run):
    paths = [
        write_run("a", seed=1, accuracy=(90, 80), settings=settings()),
        write_run("b", seed=2, accuracy=(90, 70), settings=settings("seed=2")),
        write_run("c", seed=1, accuracy=(90, 10), settings=settings("checkpoint_minutes=1")),
        *(write_run(f"d{seed}", seed=seed, accuracy=(90, 5), method="wa", settings={}) for seed in (1, 2)),
    ]
    group, other = groups_of(*paths)
    assert [(run.seed, run.accuracy[-1]) for run in group.runs] == [(1, 80.0), (2, 70.0)]
    assert group.averages == [85.0, 80.0]
    assert (group.name, len(group.repeated), len(other.repeated)) == ("foster", 1, 0)
    results = [read_result(path) for path in paths]
    summary, *_ = summary_grids(results, across_orders=True)
    assert summary.note.endswith(f": {paths[2].parent}")
    assert summary.best, "the rows can be compared all the same"
    assert summary.rows[0][summary.header.index("n")] == "2"
    assert summary_records(results, across_orders=True)[0]["n"] == 2
    assert accuracy_grids(results)[0].note.endswith(summary.note)


def test_the_same_class_order_is_no_other_run_however_it_is_said(write_run):
    (group,) = groups_of(
        write_run("a", settings=settings(order_seed=None)),
        write_run("b", settings=settings(order_seed=1993)),
        write_run("c", seed=5, settings=settings(seed=5, order_seed=1993)),
        write_run("other", settings=settings(order_seed=2)),
    )
    assert [run.seeds for run in group.runs] == ["5/1993", "1993", "1993/2"]
    assert len(group.repeated) == 1
    order = ["one", "two"]
    (group,) = groups_of(
        write_run("d", settings=settings(class_order=order, order_seed=7)),
        write_run("e", settings=settings(class_order=order, order_seed=None)),
    )
    assert [run.seeds for run in group.runs] == ["1993/given 1c13"]


def test_runs_of_two_given_class_orders_are_not_averaged_and_not_compared(write_run):
    orders = (["one", "two"], ["one", "two"], ["two", "one"])
    results = [
        read_result(write_run(str(seed), seed=seed, settings=settings(seed=seed, class_order=order)))
        for seed, order in enumerate(orders)
    ]
    (grid,) = summary_grids(results)
    rows = [[row[grid.header.index(name)] for name in ("method", "class order", "n")] for row in grid.rows]
    assert sorted((method, n) for method, _, n in rows) == [("foster", "1"), ("foster", "2")]
    assert all(order.startswith("given ") for _, order, _ in rows)
    assert "class orders cannot be compared" in grid.note
    assert len(list(comparable_groups(results))) == 2
    assert accuracy_grids(results)[0].header[1] == "seed/order"
    (together,) = summary_grids(results, across_orders=True)
    assert together.rows[0][together.header.index("n")] == "3"


def test_given_tasks_have_one_order_so_their_seeds_are_averaged(write_run):
    runs = [
        read_result(write_run(str(seed), seed=seed, settings=settings(seed=seed, tasks="given"))) for seed in (1, 2)
    ]
    ((group,),) = by_scenario(runs).values()
    assert [run.seeds for run in group.runs] == ["1", "2"]
    (grid,) = summary_grids(runs)
    assert (grid.rows[0][grid.header.index("n")], grid.note) == ("2", "")


def test_a_setting_that_the_results_do_not_have_is_no_difference(write_run):
    earlier = settings("seed=1")
    del earlier["foster"]["boost_branches"]
    (group,) = groups_of(write_run("a", seed=1, settings=earlier), write_run("b", seed=2, settings=settings("seed=2")))
    assert len(group.runs) == 2


def test_a_setting_that_is_gone_sets_runs_apart_only_where_they_had_different_values(write_run):
    def run(name, seed, **gone):
        return write_run(name, seed=seed, settings=settings(f"seed={seed}", foster={"gamma": "code", **gone}))

    before, since = run("a", 1, gone_setting=0), run("b", 2)
    (group,) = groups_of(before, since)
    assert [run.seed for run in group.runs] == [1, 2]
    assert len(groups_of(before, since, run("c", 3, gone_setting=1))) > 1


def test_a_recipe_of_the_users_own_is_told_by_what_it_changes_in_the_preset(write_run):
    (group,) = groups_of(write_run("a", settings=settings("batch_size=64", recipe="mine")))
    assert group.name == "foster mine"
    assert group.shared == ("batch_size=64",)
    (group,) = groups_of(
        write_run("b", settings=settings("recipe=plus", "foster.temperature=3") | {"recipe": "plus+my"})
    )
    assert (group.recipe, group.changes) == ("plus+my", ("temperature=3.0",))


def test_the_memory_of_others_is_not_told_of_a_method_without_one(write_run):
    paths = [
        write_run(f"{method}{total}", method=method, settings=settings(f"method={method}", f"memory_total={total}"))
        for method, total in (("replay", 100), ("replay", 50), ("finetune", 100))
    ]
    assert {group.name for group in groups_of(*paths)} == {f"replay memory_total={n}" for n in (50, 100)} | {"finetune"}


def test_runs_of_one_class_order_can_be_compared_whatever_their_seeds_are(write_run):
    runs = [
        read_result(write_run(method, method=method, seed=seed, settings=settings(seed=seed, order_seed=order)))
        for method, seed, order in (("foster", 1, 1993), ("wa", 2, 1993), ("icarl", 1, 7))
    ]
    for make in (summary_grids, accuracy_grids):
        assert [make(some)[0].note for some in (runs[:2], runs)] == [
            "",
            "rows of different class orders cannot be compared",
        ]
