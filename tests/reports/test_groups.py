from foster.reports.groups import by_scenario, share_orders
from foster.reports.results import read_result
from foster.reports.tables import summary_grids


def settings(**changes):
    return {
        "seed": 1,
        "device": "cpu",
        "epochs_scale": 1.0,
        "foster": {"beta_compress": 0.97, "gamma": "code"},
    } | changes


def groups_of(*paths):
    (groups,) = by_scenario([read_result(path) for path in paths], across_orders=True).values()
    return groups


def test_runs_that_differ_in_seed_and_device_alone_belong_together(write_run):
    first = write_run("a", seed=7, settings=settings(seed=7, device="cuda"))
    second = write_run("b", seed=3, settings=settings(seed=3, device="cpu"))
    (group,) = groups_of(first, second)
    assert [run.seed for run in group.runs] == [3, 7]
    assert group.name == "foster"


def test_runs_with_another_recipe_are_never_averaged_and_say_what_differs(write_run):
    groups = groups_of(
        write_run("a", accuracy=(90, 80), settings=settings()),
        write_run("b", accuracy=(90, 70), settings=settings(foster={"beta_compress": 0.0, "gamma": "code"})),
        write_run("c", accuracy=(90, 60), settings=settings(epochs_scale=0.5)),
    )
    assert [group.name for group in groups] == [
        "foster",
        "foster beta_compress=0.0",
        "foster epochs_scale=0.5",
    ], "what most of them share is not told"
    two = groups_of(*(group.runs[0].path for group in groups[:2]))
    assert [group.name for group in two] == ["foster beta_compress=0.97", "foster beta_compress=0.0"]


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


def test_scenarios_keep_the_order_of_their_first_runs(write_run):
    runs = [read_result(write_run(name, scenario=name)) for name in ("z", "a")]
    assert list(by_scenario([*runs, runs[0]])) == ["z", "a"]


def test_the_same_recipe_and_seed_counts_once_and_the_table_says_so(write_run):
    (group,) = groups_of(
        write_run("a", seed=1, accuracy=(90, 80), settings=settings()),
        write_run("b", seed=2, accuracy=(90, 70), settings=settings(seed=2)),
        write_run("c", seed=1, accuracy=(90, 10), settings=settings(checkpoint_minutes=1.0)),
    )
    assert [(run.seed, run.accuracy[-1]) for run in group.runs] == [(1, 80.0), (2, 70.0)]
    assert group.averages == [85.0, 80.0]
    assert group.name == "foster (1 repeated left out)"


def test_another_class_order_is_another_run_of_the_same_seed(write_run):
    (group,) = groups_of(
        write_run("a", settings=settings(order_seed=1)),
        write_run("b", settings=settings(order_seed=2)),
        write_run("c", settings=settings(order_seed=None)),
    )
    assert len(group.runs) == 3


def test_the_same_class_order_is_no_other_run_however_it_is_said(write_run):
    (group,) = groups_of(
        write_run("a", settings=settings(order_seed=None)),
        write_run("b", settings=settings(order_seed=1993)),
        write_run("c", seed=5, settings=settings(seed=5, order_seed=1993)),
    )
    assert [run.seeds for run in group.runs] == ["5/1993", "1993"]
    assert group.name == "foster (1 repeated left out)"
    order = ["one", "two"]
    (group,) = groups_of(
        write_run("d", settings=settings(class_order=order, order_seed=7)),
        write_run("e", settings=settings(class_order=order, order_seed=None)),
    )
    assert [run.seeds for run in group.runs] == ["1993"]


def test_given_tasks_have_one_order_so_their_seeds_are_averaged(write_run):
    runs = [
        read_result(write_run(str(seed), seed=seed, settings=settings(seed=seed, tasks="given"))) for seed in (1, 2)
    ]
    ((group,),) = by_scenario(runs).values()
    assert [run.seeds for run in group.runs] == ["1", "2"]
    (grid,) = summary_grids(runs)
    assert (grid.rows[0][grid.header.index("n")], grid.note) == ("2", "")


def test_what_most_methods_of_a_scenario_do_not_share_stands_in_their_names(write_run):
    def run(method, last, **changes):
        given = {
            "method": method,
            "memory_total": 2000,
            "memory_per_class": None,
            "batch_size": 128,
            "base_classes": 0,
        }
        own = {method: {"first": {"epochs": len(method)}}}
        return write_run(method, accuracy=(90, last), method=method, settings=given | own | changes)

    groups = groups_of(
        run("foster", 80),
        run("wa", 70, memory_total=None, memory_per_class=20),
        run("der", 60, batch_size=64, base_classes=2),
        run("finetune", 50, memory_total=7),
    )
    assert [group.name for group in groups] == [
        "foster memory_total=2000",
        "wa memory_per_class=20",
        "der batch_size=64 memory_total=2000",
        "finetune",
    ]
    groups = groups_of(run("foster", 80), run("wa", 70), run("finetune", 50, memory_total=7))
    assert [group.name for group in groups] == ["foster", "wa", "finetune"]


def test_augmentations_that_are_both_called_custom_are_told_apart_between_methods(write_run):
    groups = groups_of(
        *(
            write_run(
                method,
                method=method,
                augmentation="custom",
                accuracy=(90, 50 + cutout),
                settings=settings(augmentation={"cutout": cutout, "flip": True}),
            )
            for method, cutout in (("foster", 8), ("wa", 4))
        ),
        write_run("r", method="replay", accuracy=(90, 10), settings=settings(augmentation="plain")),
    )
    assert [group.name for group in groups] == ["foster augmentation.cutout=8", "wa augmentation.cutout=4", "replay"]


def test_a_class_order_is_told_by_a_few_letters_that_no_other_has(write_run):
    orders = [[f"class {k}" for k in range(100)], [f"class {99 - k}" for k in range(100)], []]
    groups = groups_of(
        *(
            write_run(f"{k}", accuracy=(90, 80 - k), settings=settings(class_order=order))
            for k, order in enumerate(orders)
        )
    )
    first, second, third = (group.name for group in groups)
    assert third == "foster"
    assert first != second
    assert all(name.startswith("foster class_order=#") and len(name) < 30 for name in (first, second))


def test_a_named_recipe_is_told_by_its_name_alone(write_run):
    plus = {"beta_compress": 0.97, "gamma": "code", "boost_branches": 2, "compress_cutmix": 1.0}
    groups = groups_of(
        write_run("a", accuracy=(90, 80), settings=settings(recipe="plus", foster=plus)),
        write_run("b", accuracy=(90, 70), settings=settings(recipe="")),
        write_run("c", accuracy=(90, 60), settings=settings(recipe="plus", foster={**plus, "boost_branches": 3})),
    )
    assert [group.name for group in groups] == [
        "foster plus boost_branches=2",
        "foster",
        "foster plus boost_branches=3",
    ]


def test_a_setting_that_came_later_has_its_default_in_earlier_results(write_run):
    later = {"beta_compress": 0.97, "gamma": "code", "boost_branches": 1}
    first = write_run("a", seed=1, settings=settings())
    second = write_run("b", seed=2, settings=settings(seed=2, foster=later))
    (group,) = groups_of(first, second)
    assert len(group.runs) == 2


def test_a_setting_that_is_gone_sets_runs_apart_only_where_they_had_different_values(write_run):
    def run(name, seed, **gone):
        return write_run(name, seed=seed, settings=settings(seed=seed, foster={"gamma": "code", **gone}))

    before, since = run("a", 1, gone_setting=0), run("b", 2)
    (group,) = groups_of(before, since)
    assert [run.seed for run in group.runs] == [1, 2]
    assert len(groups_of(before, since, run("c", 3, gone_setting=1))) > 1


def test_groups_share_class_orders_whatever_their_seeds_are(write_run):
    ours, theirs = (
        write_run(method, method=method, seed=seed, settings=settings(seed=seed, order_seed=order))
        for method, seed, order in (("foster", 1, 1993), ("wa", 2, 1993))
    )
    others = write_run("icarl", method="icarl", seed=1, settings=settings(seed=1, order_seed=7))
    assert share_orders(groups_of(ours, theirs))
    assert not share_orders(groups_of(ours, theirs, others))
