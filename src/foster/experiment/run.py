"""An experiment: for every task and phase, train, evaluate, remember and save, in one folder."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from torch import Tensor

from foster import events
from foster.data.download import Follower
from foster.data.photos.decode import quiet_pillow
from foster.data.task import Task
from foster.errors import DataError, FolderError, FosterError, short
from foster.evaluation.predict import evaluate_scores, network_scores
from foster.experiment.artifacts import keep_network, keep_predictions
from foster.experiment.engine import build_engine, describe_environment, engine_settings
from foster.experiment.first_task import check_phases, first_task
from foster.experiment.folder import RunFolder, check_same_settings
from foster.experiment.parts import build_method, check_parts, load_scenario, normalisation, plugins_used
from foster.experiment.record import Record
from foster.methods.base import checked_phases
from foster.methods.refresh import grown_sizes, phases_of_run
from foster.networks.modules import freeze, on_host
from foster.networks.network import Network
from foster.settings.base import make
from foster.settings.experiment import Settings
from foster.system.documents import read_tensors
from foster.system.processes import barrier, stop_together
from foster.system.signals import StopRequest
from foster.training.checkpoint import Checkpoint, Tensors, explained_misfit
from foster.training.engine import find_device
from foster.training.fit import restore_trained
from foster.training.memory_errors import explained_memory_errors
from foster.training.phase import Evaluate
from foster.training.task import TaskState, Trainer


class Experiment:
    """One run in its folder. Everything that it needs to continue after an interruption is in the folder."""

    def __init__(
        self,
        settings: Settings,
        folder: RunFolder,
        listener: events.Listener,
        stop: StopRequest,
        *,
        allows_changed_plugin: bool = False,
    ) -> None:
        self.settings = settings
        self.folder = folder
        self._listener = listener
        self._stop = stop
        self._is_writing = False
        """Whether events are written. Until the run begins, there may be no folder, and they are only shown."""
        self._saved: float | None = None
        """When the last checkpoint was written, or read."""
        self._plugins = [plugins_used(settings)]
        """The hash of each plug-in: now, and before where the run was continued with another one."""
        self._allows_changed_plugin = allows_changed_plugin
        backbone = check_parts(settings)
        with explained_memory_errors(find_device(settings.device)):
            follower = Follower(self._tell, stop)
            self.scenario = load_scenario(settings, follower)
            computing = engine_settings(settings.engine, backbone.is_builtin)
            self.engine = build_engine(computing, settings.device, *normalisation(backbone, self.scenario))
            self.method = build_method(settings, self.scenario, self.engine, follower)
        self.method.memory.kind = self.scenario.kind
        self.record = Record(self.method.result_name)
        self._trainer = Trainer(
            self.engine,
            settings.augmentation_settings,
            settings.batch_size,
            settings.seed,
            self._tell,
            stop,
            settings.checkpoint_minutes,
            len(self.scenario),
            settings.fewest_in_a_batch,
        )

    def run(self) -> dict[str, Any]:
        """Learn all tasks that are not learned yet, and return what `results.json` holds at the end."""
        device = str(self.engine.device)
        folder = str(self.folder.path) if self.folder.can_resume else ""  # a temporary folder is not named
        self._is_writing = True
        self._tell(events.RunStarted(self.settings.method, self.scenario.name, len(self.scenario), folder, device))
        for remark in self.settings.remarks(len(self.scenario)):
            self._warn(remark)
        resume = self.folder.resume_command(self.settings) if self.folder.can_resume else ""
        memory_errors = explained_memory_errors(self.engine.device, self.settings.batch_size, resume)
        with memory_errors, quiet_pillow():
            state = self._start()
            barrier()  # all processes have read before one writes
            if self._saved is None and state.num_phases_done:
                self.save(state)  # with the first task of another run
            while state.task < len(self.scenario):
                state = self._learn(state)
                if state.task < len(self.scenario):
                    self._trainer.stop_if_requested()
        results = self._results(is_finished=True)
        self.folder.write_results(results)
        average, final = results["average_incremental_accuracy"], results["final_accuracy"]
        self._tell(events.RunEnded(average, final, results["train_seconds"]))
        return results

    def _start(self) -> TaskState:
        """The task to begin with and its progress, from the newest checkpoint."""
        checkpoint = self.folder.checkpoints.load(self._warn)
        if checkpoint is None:
            self.folder.check_nothing_learned()
            first = first_task(self.settings)
            if first is None:
                return TaskState(0)
            weights = read_tensors(first.network)
            return TaskState(0, {"phase-0": weights}, num_phases_done=1, seconds_before=first.seconds)
        with explained_misfit():
            self._check_same_run(checkpoint.state)
            return self._restored(checkpoint)

    def _learn(self, state: TaskState) -> TaskState:
        """Learn one task, from where `state` stands; returns the beginning of the next."""
        new = self.scenario[state.task]
        task = replace(new, exemplars=self.method.memory.exemplars(new.class_names))
        self._trainer.begin(task)
        epochs = self._trainer.learn(
            checked_phases(self.method, phases_of_run(self.method, task)),
            state,
            lambda wanted: self._evaluate(wanted, task),
            lambda: self.save(state),
        )
        if task.is_first and self.settings.first_task_from:
            check_phases(self.settings, len(epochs))
        self._evaluate(Evaluate(self.method.result_name, self.method.network), task)
        return self._close_task(task, state.seconds)

    def _evaluate(self, wanted: Evaluate, task: Task) -> None:
        if self.record.is_evaluated(wanted.variant, task.index):
            return
        memory, test = self.method.memory, self.scenario.test_up_to(task.index)
        # A class that is not remembered yet has no mean.
        exemplars = memory.exemplars(task.class_names) if memory.num_classes == task.num_total else None
        by_kind = network_scores(self.engine.infer, wanted.network, test, exemplars, task.num_total)
        scores = {self._variant_name(wanted.variant, kind): values for kind, values in by_kind.items()}
        for variant, values in scores.items():
            evaluation = evaluate_scores(values, test, self.scenario.task_sizes[: task.index + 1])
            self.record.add(variant, evaluation)
            self._tell(events.Evaluated(task.index, variant, **vars(evaluation)))
        predicted = {variant: values.argmax(1) for variant, values in scores.items()}
        if not self.folder.is_written:
            return
        keep_predictions(self.folder.path, task.index, test.labels, predicted)
        if self.settings.keep_networks:
            keep_network(self.folder.path, task.index, wanted.variant, wanted.network)

    def _variant_name(self, network: str, kind: str) -> str:
        """The name of the classifier `kind` of a network: the method's own classifier has the network's name."""
        if network != self.method.result_name:
            return network if kind == "head" else f"{network}_{kind}"
        return network if kind == self.settings.options.classifies_by else kind

    def _close_task(self, task: Task, seconds: float) -> TaskState:
        memory, network = self.method.memory, self.method.network
        self.record.close_task(seconds, network.num_parameters(), memory.num_bytes + self.method.kept_bytes)
        self.folder.write_results(self._results(is_finished=False))
        self._tell(events.TaskEnded(task.index, self.record.result[-1].accuracy, memory.num_images, seconds))
        # Between two tasks, the method is its networks and its memory. A network with statistics is never changed in
        # place, and may be large: it is copied when it is written.
        keep = Tensor.detach if network.statistics_bytes else on_host
        parts: dict[str, Tensors] = {"network": {name: keep(tensor) for name, tensor in network.state_dict().items()}}
        if self.method.first is not None:
            parts["first"] = {name: on_host(tensor) for name, tensor in self.method.first.state_dict().items()}
        if memory.num_classes:
            parts["memory"] = memory.state()
        state = TaskState(task.index + 1, parts)
        # A closed-form task takes seconds, so its checkpoint is written from time to time, at a stop and at the end.
        is_late = self._saved is None or time.monotonic() - self._saved >= 60 * self.settings.checkpoint_minutes
        if not network.statistics_bytes or is_late or self._stop.is_set or state.task == len(self.scenario):
            self.save(state)
        return state

    def _results(self, is_finished: bool) -> dict[str, Any]:
        tasks = self.scenario.task_names[: self.record.num_tasks]
        plugins, *others = self._plugins
        before = {"plugins_before": others} if others else {}
        return {
            "method": self.settings.method,
            "scenario": self.scenario.name,
            "seed": self.settings.seed,
            "augmentation": self.settings.augmentation_name,
            "finished": is_finished,
            "evaluated_on": "validation" if self.settings.validation_share else "test",
            **self.record.summary(),
            "tasks": tasks,
            "classes": [name for names in tasks for name in names],
            "settings": self.settings.published(),
            "environment": {**describe_environment(self.engine), "plugins": plugins, **before},
        }

    def save(self, state: TaskState) -> None:
        """Write a checkpoint with the progress and the identity of the run."""
        facts = {
            "settings": self.settings.nested(),
            "classes": self.scenario.class_names,
            "plugins": self._plugins,
            "record": self.record.state(),
        }
        state.save(self.folder.checkpoints, facts, self._tell)
        self._saved = time.monotonic()

    def _check_same_run(self, state: Mapping[str, Any]) -> None:
        saved = make(Settings, state["settings"], "the checkpoint")
        check_same_settings(saved, self.settings, "the checkpoint is of a run")
        if list(self.scenario.class_names) != state["classes"]:
            raise DataError("the classes of the dataset are not those of the checkpoint; were its files exchanged?")
        self._check_plugins(state["plugins"])

    def _check_plugins(self, saved: list[dict[str, str]]) -> None:
        """Refuse a plug-in that was edited since the run began, unless that is allowed."""
        now = self._plugins[0]
        changed = [name for name, digest in saved[0].items() if now.get(name, digest) != digest]
        for name in changed:
            if not self._allows_changed_plugin:
                raise FolderError(
                    f"the plug-in '{name}' was edited since '{self.folder.path}' was begun; put it back, "
                    "or go on with it as it is now: --allow-changed-plugin, from Python allow_changed_plugin=True"
                )
            self._warn(f"the plug-in '{name}' was edited since the run was begun")
        self._plugins = [now, *saved] if changed else saved

    def _restored(self, checkpoint: Checkpoint) -> TaskState:
        """Restore network, memory and record. Returns the progress of the task."""
        state, parts = checkpoint.state, checkpoint.parts
        self.record = Record.from_state(state["record"])
        if self.record.num_tasks != state["task"] or state["task"] > len(self.scenario):
            raise ValueError(f"it is of task {short(state['task'])}, and its record of {self.record.num_tasks} tasks")
        if state["task"]:
            self.record.summary()  # an error where its numbers do not belong together
            sizes = grown_sizes(self.method, self.scenario.task_sizes[: state["task"]])
            self.method.network = self.method.new_network(sizes)
            restore_trained(self.method.network, parts["network"])
            if "first" in parts:
                first = self.method.new_network(sizes[:1])
                restore_trained(first, parts["first"])
                self.method.first = freeze(first)
        if "memory" in parts:
            self.method.memory.load_state(parts["memory"])
        self._saved = time.monotonic()
        reached = TaskState.of(checkpoint)
        self._tell(reached.resumed)
        return reached

    def _warn(self, message: str) -> None:
        self._tell(events.Warned(message))

    def _tell(self, event: events.Event) -> None:
        if self._is_writing and not isinstance(event, events.Decoding):
            self.folder.note(event)
        self._listener(event)


def begin(settings: Settings, folder: RunFolder, listener: events.Listener, stop: StopRequest) -> Network:
    """A new run in a folder that holds nothing yet; returns the network after the last task."""
    folder.check_free(settings)
    # Data, device, backbone and a first task that is taken over are checked here, before the folder is made.
    experiment = Experiment(settings, folder, listener, stop)
    first_task(settings)
    # A stop that was asked for until now leaves no folder behind.
    stop_together(stop)
    with folder.opened(settings):
        return _finish(experiment)


def go_on(
    settings: Settings,
    folder: RunFolder,
    listener: events.Listener,
    stop: StopRequest,
    *,
    allows_changed_plugin: bool = False,
) -> Network:
    """Continue the run in the folder from its newest checkpoint; only `FREE_SETTINGS` may differ from its own."""
    folder.check_same(settings)
    experiment = Experiment(settings, folder, listener, stop, allows_changed_plugin=allows_changed_plugin)
    stop_together(stop)  # the images may have taken minutes to read
    with folder.opened():
        folder.keep_settings(settings)
        return _finish(experiment)


def _finish(experiment: Experiment) -> Network:
    try:
        experiment.run()
    except FosterError as error:
        with suppress(FolderError):  # the error itself is raised in any case
            experiment.folder.note(events.RunFailed(str(error)))
        raise
    return experiment.method.network
