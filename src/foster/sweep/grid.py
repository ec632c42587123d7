"""A grid of runs: `method=foster,replay seed=1993,1,2` gives six runs with checked settings and distinct names."""

import itertools
import random
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from foster.errors import SettingsError
from foster.settings.base import COMMAND_LINE, MEMORY_KEYS
from foster.settings.experiment import Settings, load_settings
from foster.settings.plugins import needed_plugins
from foster.system.files import sha256

LONGEST_NAME = 150
"""Names become file names with an ending, which most file systems limit to 255 bytes."""

IN_RUN_NAME = frozenset(
    {"method", "recipe", "augmentation", "seed", "dataset", "base_classes", "increment", "task_sizes"}
)
"""Keys that `Settings.run_name` contains."""

RANGE = re.compile(r"(log:)?([-+]?\d*\.?\d+(?:e[-+]?\d+)?)\.\.([-+]?\d*\.?\d+(?:e[-+]?\d+)?)")
"""`0.01..0.3` or `log:0.01..0.3`."""

QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep; `name` is that of its folder, `varied` are the keys that have several values in the sweep."""

    name: str
    settings: Settings
    varied: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        """The same for two runs with equal settings."""
        return self.settings.toml()


def plan_runs(
    source: str,
    overrides: Sequence[str],
    data: str | None = None,
    plugins: Sequence[str] | None = None,
    place: str = COMMAND_LINE,
    trusts_plugins: bool | None = None,
    samples: int = 0,
) -> list[PlannedRun]:
    """All combinations of the overrides' values, in the order of a nested loop with the last key innermost.

    Numbers are drawn at random from a range, `0.01..0.3` or `log:0.01..0.3`: each combination of the other values is
    repeated `samples` times, with a new number from each range. The draws are the same in every call; with more
    samples, the first ones stay the same.

    A key of one method's section multiplies the runs of that method alone. Everything is checked here: a wrong key or
    value anywhere, or a list of values that no run uses, is an error before the first run starts. `place` says in error
    messages where the overrides come from.
    """
    # Several recipes are laid over each other; the values of one `recipe=A,B` are varied.
    recipes = [override for override in overrides if override.startswith("recipe=")]
    recipes = recipes if len(recipes) > 1 else []
    axes: dict[str, list[str]] = {}
    for override in (each for each in overrides if each not in recipes):
        key, separator, text = (part.strip() for part in override.partition("="))
        if not separator:
            raise SettingsError(f"'{override}' is not of the form key=value,value,...")
        if key in axes:
            raise SettingsError(f"{key} is given more than once; write {key}=VALUE,VALUE")
        axes[key] = split_values(text)
    ranges = {key: ends for key, (text, *more) in axes.items() if not more and (ends := RANGE.fullmatch(text))}
    if bool(ranges) != bool(samples):
        raise SettingsError(
            "a range (key=log:0.01..0.3) needs --samples N, the number of draws; without a range, leave it out"
        )
    runs: dict[str, tuple[Settings, list[str]]] = {}
    """The settings of each run, and the overrides that have an effect on it, by the settings as TOML."""
    for chosen, sample in itertools.product(itertools.product(*axes.values()), range(max(1, samples))):
        drawn = {key: _drawn(key, ends, sample) for key, ends in ranges.items()}
        values_of = dict(zip(axes, chosen, strict=True)) | drawn
        pairs = [*recipes, *(f"{key}={value}" for key, value in values_of.items())]
        settings = load_settings(source, pairs, place=place, plugins=plugins, trusts_plugins=trusts_plugins, data=data)
        # A run has only the plug-ins that it uses, so it does not depend on those of the runs beside it.
        needed = needed_plugins(settings.plugins, settings.plugin_names)
        settings = settings.model_copy(update={"plugins": needed})
        used_pairs = [pair for pair in pairs if not settings.why_unused(pair.partition("=")[0])]
        runs.setdefault(settings.toml(), (settings, used_pairs))  # `seed=1,01` is one run
    varied = frozenset(key for key, values in axes.items() if len(values) > 1 or key in ranges)
    for key in sorted(varied):
        _check_used(key, [settings for settings, _ in runs.values()])
    # The data folder is in a name only if it varies.
    left_out = IN_RUN_NAME if "data" in varied else IN_RUN_NAME | {"data"}
    names = [_name(*run, left_out) for run in runs.values()]
    counts = Counter(names)
    return [
        PlannedRun(name if counts[name] == 1 else distinct_name(name, settings), settings, varied)
        for name, (settings, _) in zip(names, runs.values(), strict=True)
    ]


def _drawn(key: str, ends: re.Match[str], sample: int) -> str:
    """A number from a range, uniform or log-uniform; an integer where both ends are integers."""
    low, high = float(ends[2]), float(ends[3])
    if not (0 < low < high if ends[1] else low < high):
        above = " above 0" if ends[1] else ""
        raise SettingsError(f"{key}: '{ends[0]}' must go from a lower to a higher number{above}")
    share = random.Random(f"{key} {sample}").random()
    value = low * (high / low) ** share if ends[1] else low + (high - low) * share
    return str(round(value)) if ends[2].isdigit() and ends[3].isdigit() else f"{value:.3g}"


def split_values(text: str) -> list[str]:
    """Split `text` at commas, except inside brackets, braces and quotes."""
    values: list[str] = []
    lacking: list[str] = []
    for part in text.split(","):
        value = f"{values.pop()},{part}" if lacking else part
        outside = QUOTED.sub("", value)
        lacking = [quote for quote in "\"'" if quote in outside]
        lacking += [closing for opening, closing in ("[]", "{}") if outside.count(opening) > outside.count(closing)]
        values.append(value)
    if lacking:
        raise SettingsError(f"'{text}' lacks a closing {lacking[0]} (on the command line)")
    return [value.strip() for value in values]


def _check_used(key: str, runs: Sequence[Settings]) -> None:
    """Refuse to vary a key that no run uses."""
    reasons = [settings.why_unused(key) for settings in runs]
    if key in MEMORY_KEYS:
        reasons = ["" if settings.options.uses_memory else f"{settings.method} has no memory" for settings in runs]
    if all(reasons):
        raise SettingsError(f"varying {key} has no effect: {reasons[0]} (on the command line)")


def _name(settings: Settings, pairs: Sequence[str], left_out: Collection[str]) -> str:
    """The folder name of a run: its usual name and its other overrides, `digits-b0-inc2-foster-s1,key=value`."""
    name = ",".join([settings.run_name, *(_plain(pair) for pair in pairs if pair.partition("=")[0] not in left_out)])
    return name if len(name) <= LONGEST_NAME else distinct_name(name, settings)


def distinct_name(name: str, settings: Settings, versions: str = "") -> str:
    """The name, shortened if needed, with a hash of the settings, and of the `versions` of its plug-ins and data."""
    return f"{name[:LONGEST_NAME]}-{sha256((settings.toml() + versions).encode())[:8]}"


def _plain(pair: str) -> str:
    """`key=value` with characters that are safe in a path and in a shell."""
    key, _, value = pair.partition("=")
    return f"{key}={re.sub(r'[^A-Za-z0-9.+-]+', '_', value).strip('_')}"
