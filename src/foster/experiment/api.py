"""`foster.run` and `foster.plan`."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from foster.errors import FolderError, SettingsError
from foster.events import Event, Listener, ignore
from foster.experiment.folder import RunFolder
from foster.experiment.parts import has_same_plugins
from foster.experiment.plan import Plan, make_plan, measured_plan
from foster.experiment.results import RESULTS, read_result
from foster.experiment.run import begin, go_on
from foster.networks.network import Network
from foster.reports.api import Result
from foster.settings.base import check_used, flat
from foster.settings.experiment import Settings, load_settings
from foster.settings.toml import value_text
from foster.system.files import user_path
from foster.system.signals import StopRequest

ASKED = "in the keywords"
REGISTERED = ("backbone", "dataset", "method")


def run(
    source: str | Path | None = None,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    allow_changed_plugin: bool = False,
    listener: Listener | None = None,
    progress: bool = False,
    **settings: Any,
) -> Result:
    """Train one method on one scenario, and return its results.

    ```python
    result = foster.run("cifar100-b0-inc10", method="wa", seed=1, data="data")
    result.average_incremental_accuracy
    ```

    `source` is a preset's name, a settings file or a run's folder; without one, all settings are keywords. Every other
    keyword is a setting: `method="wa"`, a table such as `wa={"later": {"epochs": 50}}`, which changes only the
    keys that it names, or a dotted key, `**{"wa.later.epochs": 50}`. `memory_total=None` unsets that optional
    key.

    With a `folder`, everything is written there, as by `foster run`. `resume=True` continues an interrupted run, or
    begins one if the folder holds none; a finished run is not trained again. If a plug-in was edited meanwhile, the run
    is taken only with `allow_changed_plugin=True`. Without a folder nothing is kept on the disk.

    Nothing is printed unless `progress` is True. `listener` is called with every event (`foster.events`). No signal
    handlers are set: Ctrl-C raises KeyboardInterrupt at once, and a resumed run starts from the last checkpoint
    (`checkpoint_minutes`).
    """
    chosen = _settings(source, settings)
    if folder is None and resume:
        raise SettingsError("resume=True needs the folder of the run: folder=...")
    from foster.reports.progress import progress_for

    with progress_for() if progress else nullcontext(ignore) as show:

        def tell(event: Event) -> None:
            show(event)
            if listener is not None:
                listener(event)

        if folder is not None:
            return _run_in(RunFolder(user_path(folder)), chosen, resume, tell, allow_changed_plugin)
        with TemporaryDirectory(prefix="foster-") as temporary:
            unkept = RunFolder(Path(temporary, "run"), can_resume=False)
            return _result(unkept, begin(chosen, unkept, tell, StopRequest()))


def plan(
    source: str | Path | None = None,
    *,
    measure: bool = False,
    **settings: Any,
) -> Plan:
    """What `run` with the same arguments would do: tasks, images, exemplars, epochs, parameters, memory, time.

    ```python
    foster.plan("cifar100-b0-inc10", method="wa").total_epochs
    ```

    With `measure`, a few steps of each phase are timed now, and `time` is the estimated time of all steps.
    """
    chosen = _settings(source, settings)
    return measured_plan(chosen) if measure else make_plan(chosen)


def _run_in(folder: RunFolder, settings: Settings, resume: bool, tell: Listener, allows_changed_plugin: bool) -> Result:
    work: Callable[..., Network] = begin
    if resume and folder.holds_run:
        settings = settings.model_copy(update={"data": settings.data or folder.settings().data})
        work = partial(go_on, allows_changed_plugin=allows_changed_plugin)
        if folder.is_finished:
            folder.check_same(settings)
            result = read_result(folder.path / RESULTS)
            if not (allows_changed_plugin or has_same_plugins(result.content, settings)):
                raise FolderError(
                    f"a plug-in was edited since the run in '{folder.path}' was finished; choose another folder, "
                    "or take its results as they are: allow_changed_plugin=True"
                )
            return Result.of(result)
    try:
        return _result(folder, work(settings, folder, tell, StopRequest()))
    except KeyboardInterrupt as interrupt:
        if folder.holds_run:
            interrupt.add_note(f"the run goes on with foster.run(..., folder={str(folder.path)!r}, resume=True)")
        raise


def _result(folder: RunFolder, network: Network) -> Result:
    return Result.of(read_result(folder.path / RESULTS), network)


def _settings(source: str | Path | None, keywords: Mapping[str, Any]) -> Settings:
    # Tables become dotted keys, so that keys which they do not name keep their values; an augmentation is one value.
    whole = {key: value for key, value in keywords.items() if key == "augmentation"}
    dotted = flat({key: value for key, value in keywords.items() if key not in whole}) | whole
    overrides = [f"{key}={_text(key, value)}" for key, value in dotted.items()]
    settings = load_settings(None if source is None else str(source), overrides, place=ASKED)
    check_used(overrides, settings, ASKED)
    return settings


def _text(key: str, value: Any) -> str:
    if value is None:
        return "none"
    try:
        return value_text(str(value) if isinstance(value, Path) else value)
    except TypeError:
        hint = f"; give it a name with foster.register_{key}, and set {key} to that name" if key in REGISTERED else ""
        raise SettingsError(f"{key}: a {type(value).__name__} is no value of a setting{hint} ({ASKED})") from None
