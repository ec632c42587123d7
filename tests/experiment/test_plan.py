"""Plans: the published protocols by hand, and that a plan is what a run then does."""

import json
from pathlib import Path

import pytest
import torch
from photo_folders import write_dataset
from tiny_runs import assert_is_planned, start, tiny_settings

from foster.data.images import ImageSet
from foster.data.task import Task
from foster.errors import SettingsError
from foster.events import Event
from foster.experiment import plan as planning
from foster.experiment.plan import BATCHES_OF_PHOTOS, TYPICAL_FILE_BYTES, make_plan, measured_plan
from foster.settings.experiment import Settings, load_settings
from foster.training.phase import Phase

TINY = (
    "synthetic={num_classes=5, train_per_class=11, test_per_class=2, image_size=8}",
    "memory_total=16",
    "memory_per_class=none",
    "epochs_scale=0.005",
)
"""Tasks of 2, 2 and 1 classes with 22, 22 + 16 and 11 + 16 images."""


def tiny(*overrides: str) -> Settings:
    return tiny_settings("foster", *TINY, *overrides)


@pytest.mark.parametrize(
    ("dataset", "known"),
    [
        ("digits", ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight")),
        ("synthetic", ("class 00",)),
        ("folder", ("class 0",)),
    ],
)
def test_a_plan_refuses_a_class_that_the_dataset_does_not_have(
    dataset: str, known: tuple[str, ...], tmp_path: Path
) -> None:
    write_dataset(tmp_path, num_classes=2, per_class=2, broken=0)
    chosen = {"synthetic": ["synthetic.num_classes=2"], "folder": [f"data={tmp_path}"]}.get(dataset, [])
    chosen = [f"dataset={dataset}", "increment=1", *chosen, f"class_order={json.dumps([*known, 'unicorn'])}"]
    with pytest.raises(SettingsError, match="'unicorn'"):
        make_plan(load_settings("digits", chosen))


def test_the_plan_of_the_main_table_is_the_published_protocol() -> None:
    plan = make_plan(load_settings("cifar100-b0-inc10"))
    assert [task.num_total for task in plan.tasks] == list(range(10, 101, 10))
    assert [task.new_images for task in plan.tasks] == [5000] * 10
    quotas = [200, 100, 66, 50, 40, 33, 28, 25, 22]
    assert [task.exemplars for task in plan.tasks] == [0, *(10 * (k + 1) * quota for k, quota in enumerate(quotas))]
    # 5,000 images are 40 batches of 128; with 2,000 exemplars 55.
    assert plan.tasks[0].phases == (("learn", 200, 200 * 40),)
    assert plan.tasks[1].phases == (("boost", 170, 170 * 55), ("compress", 130, 130 * 55))
    assert plan.total_epochs == 200 + 9 * 300
    assert plan.tasks[-1].params == 463_504 + 100 * 65
    assert (plan.memory_images, plan.memory_bytes) == (2000, 2000 * 3 * 32 * 32)


def test_the_plan_of_bic_and_podnet_tells_the_images_that_each_phase_gets() -> None:
    bic, podnet = (
        make_plan(load_settings("cifar100-b0-inc20", [f"method={method}", "backbone=resnet8"])).tasks
        for method in ("bic", "podnet")
    )
    # 10 images of each of 40 classes are held out: 11,600 images are 91 batches, and the 400 are 4.
    assert bic[1].phases == (("learn", 170, 170 * 91), ("correct", 170, 170 * 4))
    # 2 images of each of 100 classes, out of 10,000 and 2,000.
    assert bic[-1].phases == (("learn", 170, 170 * 93), ("correct", 170, 170 * 2))
    # 100 images of each of 40 classes; at the end 25 of each of 100.
    assert podnet[1].phases == (("learn", 160, 160 * 94), ("finetune", 20, 20 * 32))
    assert podnet[-1].phases == (("learn", 160, 160 * 94), ("finetune", 20, 20 * 20))
    assert podnet[0].params == 77_392 + 20 * 10 * 64 + 1


def test_a_plan_is_shown_with_a_row_a_task_and_its_totals() -> None:
    plan = make_plan(load_settings("digits", ["device=cpu", "base_classes=4", "increment=3"]))
    text = repr(plan)
    assert "digits-b4-inc3: method foster, backbone" in text
    rows = [line.split() for line in text.splitlines() if line.split()[1:2] and line.split()[1].startswith("+")]
    assert [row[:3] for row in rows] == [["1", "+4", "4"], ["2", "+3", "7"], ["3", "+3", "10"]]
    assert "boost" in text
    assert all(fact in text for fact in (f"{plan.total_epochs:,}", f"{plan.total_steps:,}", " 200 ", "37.5 KiB"))
    assert "estimated time: not known" in text
    assert "images: computed from the mean" in text, "there are 178 to 183 images of a digit"
    assert "images: computed from the mean" not in repr(make_plan(load_settings("cifar100-b0-inc20")))
    assert "photos:" not in text


B50_INC10 = {
    "der": (1050, 82040, 2000, 486340, 199130176),
    "joint": (1200, 352200, 50000, 81140, 346246976),
    "slda": (200, 39200, 0, 113140, 199109568),
}
"""Epochs, steps, exemplars at the end, parameters at the end and bytes while training: worked out from the protocol."""


@pytest.mark.parametrize("method", B50_INC10)
def test_a_dry_run_finds_what_each_method_does_on_a_large_first_task(method: str) -> None:
    plan = make_plan(load_settings("cifar100-b50-inc10", [f"method={method}", "backbone=resnet8"]))
    totals = (plan.total_epochs, plan.total_steps, plan.memory_images, plan.tasks[-1].params, plan.training_bytes)
    assert totals == B50_INC10[method]


def test_a_dry_run_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    make_plan(tiny("method=podnet"))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_plan_of_many_large_images_takes_no_room() -> None:
    shape = "synthetic={num_classes=200, train_per_class=1280, test_per_class=1, image_size=224}"
    settings = tiny(
        shape, "base_classes=100", "increment=100", "memory_total=2000", "method=replay", "backbone=resnet8"
    )
    largest = 0

    def look(task: Task, phase: Phase) -> None:
        nonlocal largest
        largest = max(largest, phase.data.images.nbytes)

    plan = make_plan(settings, look)
    assert [task.new_images for task in plan.tasks] == [128_000, 128_000]
    assert plan.memory_bytes == 2000 * 3 * 224 * 224
    assert largest < 2**21 * 3


@pytest.mark.parametrize(
    ("method", "overrides"),
    [
        ("foster", ("batch_size=7", "validation_share=0.05", "foster.recall_first=true")),
        ("bic", ("memory_total=5",)),
        ("podnet", ("memory_total=60", "batch_size=20")),  # 2 of 22 images wait, and 4 of 44
    ],
)
def test_a_run_does_what_was_planned(method: str, overrides: tuple[str, ...], tmp_path: Path) -> None:
    """With odd numbers; `end_to_end/test_all_methods.py` has every method."""
    settings, told = tiny(f"method={method}", *overrides), list[Event]()
    results = start(settings, tmp_path / "run", told.append)
    assert_is_planned(make_plan(settings), results, told)


def test_a_first_network_that_is_kept_counts_as_memory() -> None:
    plan, plain = make_plan(tiny("foster.recall_first=true")), make_plan(tiny())
    assert plan.memory_bytes - plain.memory_bytes > 4 * plan.tasks[0].params


def test_without_compression_the_planned_network_grows() -> None:
    grown = make_plan(tiny("foster.compression=false")).tasks
    assert [[name for name, _, _ in task.phases] for task in grown] == [["learn"], ["boost"], ["boost"]]
    backbone = grown[0].params - 2 * 65
    assert [task.params for task in grown[1:]] == [2 * backbone + 4 * 129, 3 * backbone + 5 * 193]


def test_adam_needs_memory_for_its_second_moment() -> None:
    sgd = make_plan(tiny())
    adam = make_plan(tiny("foster.boost.optimizer=adam", "foster.boost.learning_rate=0.001"))
    assert adam.training_bytes - sgd.training_bytes == 4 * sgd.tasks[-1].params


@pytest.mark.parametrize(("unlabeled", "num_more"), [("", 0), ("cifar10", 50_000)])
def test_memory_is_that_of_two_copies_of_the_images_the_weights_and_the_maps_of_a_batch(
    unlabeled: str, num_more: int
) -> None:
    plan = make_plan(tiny("backbone=resnet8", f"foster.unlabeled={unlabeled}"))
    num_images, num_maps = 22 + 16 + num_more, 6 * 16 * 8**2 + 4 * 32 * 4**2 + 4 * 64 * 2**2
    assert plan.training_bytes == 2 * num_images * 3 * 8**2 + 16 * plan.tasks[-1].params + 16 * 2 * num_maps
    assert plan.memory_bytes == plan.memory_images * 3 * 8**2
    steps = {name: steps // epochs for name, epochs, steps in plan.tasks[1].phases}
    assert steps == {"boost": 3, "compress": 3 + num_more // 16}


def test_the_photos_of_the_largest_task_and_all_test_photos_are_kept_decoded() -> None:
    small = ["backbone=resnet8", "photos.image_size=32", "photos.short_side=256", "device=cpu", "engine.resident=off"]
    small += ["method=replay", "increment=50"]
    plan = make_plan(load_settings("imagenet100-b0-inc10", small))
    largest = max(task.new_images + task.exemplars for task in plan.tasks)
    assert largest == 50 * 1289 + 2000
    assert (plan.photos, plan.photo_bytes) == ("host", (largest + 5000) * 256 * 256 * 4)
    assert plan.memory_bytes == 2000 * TYPICAL_FILE_BYTES
    num_maps = 6 * 16 * 32**2 + 4 * 32 * 16**2 + 4 * 64 * 8**2
    batch = plan.settings.batch_size * (BATCHES_OF_PHOTOS * 3 * 32**2 + 2 * num_maps)
    assert plan.training_bytes == batch + 16 * plan.tasks[-1].params


def test_steps_are_timed_in_the_first_two_tasks_and_the_last_and_stretched_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed: list[tuple[str, int]] = []

    def seconds_of_two_steps(phase: Phase, data: ImageSet, task: int, *given: object) -> float:
        timed.append((phase.name, task))
        return 2 * (1.0 + task)

    monkeypatch.setattr(planning, "seconds_an_epoch", seconds_of_two_steps)
    monkeypatch.setitem(planning.STEPS_AN_EPOCH, "cpu", 2)
    settings = tiny("method=der", "synthetic.num_classes=7", "memory_total=16")
    plan = measured_plan(settings)
    assert timed == [("learn", 0), ("expand", 1), ("expand", 3)]
    assert plan.time is not None
    assert plan.time.seconds == pytest.approx(sum((1 + task.index) * task.num_steps for task in plan.tasks))
    assert plan.time.steps_a_second == pytest.approx(plan.total_steps / plan.time.seconds)
    assert plan.tasks == make_plan(settings).tasks


@pytest.mark.parametrize("method", ["foster", "podnet"])
def test_a_few_real_steps_give_a_time(method: str) -> None:
    plan = measured_plan(tiny(f"method={method}", "synthetic.num_classes=4"))
    assert plan.time is not None
    assert 0 < plan.time.seconds < 600
