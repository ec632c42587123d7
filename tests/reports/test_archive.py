import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
from tiny_runs import start, tiny_settings

from foster.errors import DataError, FosterError
from foster.experiment.folder import RunFolder
from foster.networks import build_backbone
from foster.networks.boosted import BoostedNetwork
from foster.reports.archive import BundleArchive, RunArchive, accuracy_of, open_archives
from foster.reports.features import head_weight
from foster.settings.engine import EngineSettings


def test_a_run_gives_back_the_networks_predictions_and_exemplars_it_had(kept_runs):
    (run,) = open_archives([kept_runs["foster"]])
    assert isinstance(run, RunArchive)
    labels, predicted = run.predictions()
    assert accuracy_of(run) == pytest.approx(run.result.final_accuracy)
    assert len(run.tested) == len(labels) == 72
    for network in (run.network(), run.network_after(2)):
        assert (run.infer(network, run.tested.images).logits.argmax(1).numpy() == predicted).all()
    boosted = run.network_after(2, "boosted")
    assert isinstance(boosted, BoostedNetwork)
    found = run.infer(boosted, run.tested.images).logits.argmax(1).numpy()
    assert (found == run.all_predictions.by_variant["boosted"]).all()
    assert head_weight(run).shape[0] == 6
    assert run.exemplars().class_counts().tolist() == [4] * 6


def test_images_are_normalised_as_the_pretrained_backbone_of_the_run_needs_it(tmp_path: Path):
    safetensors.torch.save_file(build_backbone("resnet8").state_dict(), tmp_path / "weights.safetensors")
    start(
        tiny_settings("finetune", f"weights={tmp_path / 'weights.safetensors'}", "backbone=resnet8"), tmp_path / "run"
    )
    (run,) = open_archives([tmp_path / "run"])
    assert isinstance(run, RunArchive)
    found = run.infer(run.network(), run.tested.images).logits.argmax(1).numpy()
    assert (found == run.predictions()[1]).all()


@pytest.mark.parametrize("change", [{"engine": EngineSettings(photo_cache="PLACE")}, {"dataset": "cifar10"}])
def test_a_strangers_run_makes_no_folder_where_its_settings_say(change: dict[str, Any], kept_runs, tmp_path: Path):
    place, folder = tmp_path / "outside", tmp_path / "run"
    shutil.copytree(kept_runs["finetune"], folder)
    settings = RunFolder(folder).settings().model_copy(update={"data": str(place), **change})
    (folder / "settings.toml").write_text(settings.toml().replace("PLACE", str(place)), encoding="utf-8")
    (run,) = open_archives([folder])
    with suppress(DataError):
        _ = run.tested
    assert not place.exists()


def test_looking_at_a_run_changes_nothing_in_its_folder(kept_runs):
    folder = kept_runs["foster"]
    (folder / "checkpoints" / ".being-written.part").write_bytes(b"by the run itself")

    def contents() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    before = contents()
    (run,) = open_archives([folder])
    run.network(), run.predictions(), run.exemplars()
    assert contents() == before


def test_of_a_folder_of_bundles_the_one_in_use_is_suggested(bundle, tmp_path: Path):
    (tmp_path / "current").symlink_to(bundle)
    with pytest.raises(DataError, match=f"'{tmp_path}'.* did you mean '{tmp_path}/current'"):
        open_archives([tmp_path])


def test_a_bundle_is_judged_by_what_it_holds_out(bundle, tmp_path: Path):
    (current := tmp_path / "current").symlink_to(bundle)
    (archive,) = open_archives([current])
    assert isinstance(archive, BundleArchive)
    assert archive.name == bundle.name
    assert archive.class_names == ("0", "1", "2", "3", "4")
    assert archive.task_sizes == (3, 2)
    labels, predicted = archive.predictions()
    assert len(labels) == len(predicted) == len(archive.tested) > 5
    assert head_weight(archive).shape[0] == 5
    assert archive.exemplars().num_classes == 5


def test_what_is_missing_is_said_in_one_line(kept_runs, tmp_path: Path):
    alone = tmp_path / "alone.json"
    alone.write_bytes((kept_runs["finetune"] / "results.json").read_bytes())
    (run,) = open_archives([alone])
    with pytest.raises(DataError, match=r"alone\.json"):
        run.predictions()
    (finetune,) = open_archives([kept_runs["finetune"]])
    with pytest.raises(DataError, match="finetune"):
        finetune.exemplars()
    with pytest.raises(DataError, match="'boosted' of task 2; it keeps 'head'"):
        finetune.network_after(1, "boosted")
    with pytest.raises(FosterError, match=f"'{tmp_path}/nothing'"):
        open_archives([tmp_path / "nothing"])


def test_predictions_of_a_class_that_no_task_has_are_one_line(kept_runs, tmp_path: Path):
    shutil.copytree(kept_runs["foster"], tmp_path / "run")
    results = tmp_path / "run" / "results.json"
    forged = json.loads(results.read_text())
    forged["tasks"][0].pop()
    results.write_text(json.dumps(forged))
    (run,) = open_archives([tmp_path / "run"])
    with pytest.raises(DataError, match="predictions"):
        run.predictions()


@pytest.mark.parametrize(("task", "class_id"), [(2, 6), (2, -1), (3, 0), (-1, 0)])
def test_predictions_of_other_classes_or_tasks_are_one_line(task: int, class_id: int, kept_runs, tmp_path: Path):
    shutil.copytree(kept_runs["foster"], tmp_path / "run")
    forged = {f"{task}/{name}": np.full(5, class_id) for name in ("labels", "compressed")}
    (tmp_path / "run" / "predictions.safetensors").write_bytes(safetensors.numpy.save(forged))
    (run,) = open_archives([tmp_path / "run"])
    with pytest.raises(DataError, match="predictions"):
        run.predictions()


def test_weights_that_do_not_fit_are_one_line(kept_runs, tmp_path: Path):
    folder = tmp_path / "run"
    shutil.copytree(kept_runs["finetune"], folder)
    settings = folder / "settings.toml"
    settings.write_text(settings.read_text().replace('"resnet8"', '"resnet20"'))
    (run,) = open_archives([folder])
    with pytest.raises(FosterError, match="does not fit"):
        run.network_after(1)


def test_runs_of_one_method_are_named_by_settings_and_seeds_else_by_their_folders(write_run):
    paths = [
        write_run(f"sweep/{name}", seed=seed, settings={"seed": seed, "foster": {"gamma": gamma}}).parent
        for name, seed, gamma in (("a", 1, "code"), ("b", 2, "code"), ("c", 1, "paper"))
    ]
    assert [run.name for run in open_archives(paths)] == ["foster s1", "foster s2", "foster gamma=paper"]
    assert [(run.name, run.method) for run in open_archives(paths[:1])] == [("foster", "foster")]
    plain = [write_run(name, augmentation=name, seed=1, settings={"seed": 1}).parent for name in ("plain", "auto")]
    assert [run.name for run in open_archives(plain)] == ["foster plain", "foster auto"]
    again = write_run("again", seed=1, settings={"seed": 1}).parent
    assert [run.name for run in open_archives([paths[0], again])] == [f"{path.name}" for path in (paths[0], again)]
