"""The shape of the house: what may import what, and what must not stand anywhere."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import get_args

import pytest

import foster
from foster.methods import method_class
from foster.methods.base import Method
from foster.settings.methods import METHOD_SETTINGS

PACKAGE = Path(foster.__file__).parent
LAYERS = [
    {"errors", "events", "seeding", "settings", "system", "version"},
    {"data", "kernels", "losses", "networks"},
    {"evaluation", "training"},
    {"bundle", "methods"},
    {"experiment"},
    {"learner"},
    {"reports", "studies", "sweep"},
    {"serving"},
    {"", "__main__", "cli", "experiment.api"},
]
"""From the ground up. A module imports from its own layer and from those below; every module has its place here."""

WITHOUT_EXPERIMENT_SETTINGS = ("data", "kernels", "losses", "networks", "training", "evaluation", "methods", "bundle")

KNOWING_METHODS = ("cli.demo",)
"""What is about some of them."""

MODULE_AS_TEXT = re.compile(r"foster\.[\w.]+:\w+")

NAMES_ALLOWED = ("networks.boosted finetune",)
"""Other things of the same name."""


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its name without `foster.`; the package itself is ''."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text(encoding="utf-8"))


@cache
def nodes(name: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(name)))


@cache
def imported(name: str) -> frozenset[str]:
    """The modules of the package that a module imports: at the top, inside a function, or by `import_module("...")`."""
    found = set()
    for node in nodes(name):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: imports are absolute"
            full_names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {full if full.removeprefix("foster.") in modules() else str(node.module) for full in full_names}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module":
            found |= {part.value for part in node.args if isinstance(part, ast.Constant)}
    inside = {target.removeprefix("foster").lstrip(".") for target in found if target.partition(".")[0] == "foster"}
    return frozenset(inside & modules().keys()) - {name}


def is_part_of(name: str, owner: str) -> bool:
    return name == owner or name.startswith(f"{owner}.")


def layer(name: str) -> int:
    """Where a module stands; the longest name in the table decides."""
    places = [(len(owner), level) for level, owners in enumerate(LAYERS) for owner in owners if is_part_of(name, owner)]
    assert places, f"'{name}' has no place in LAYERS: give it one"
    return max(places)[1]


@cache
def calls(name: str) -> tuple[tuple[str, int], ...]:
    """What a module calls, as dotted text with its line: `torch.load`, `.backward`."""
    found = (node for node in nodes(name) if isinstance(node, ast.Call))
    return tuple((ast.unparse(node.func), node.lineno) for node in found)


def test_imports_point_down() -> None:
    wrong = [
        f"{name} imports {target}"
        for name in modules()
        for target in imported(name)
        if name and layer(target) > layer(name)
    ]
    assert not wrong, wrong


def test_no_module_imports_itself_in_a_circle() -> None:
    assert list(TopologicalSorter({name: imported(name) for name in modules() if name}).static_order())


def test_only_settings_name_a_module_above_them_as_text_and_it_is_there() -> None:
    """As `foster.data.sources:read_trees`: settings import nothing from above; whoever needs it, above, resolves it."""
    named = [
        (owner, *node.value.removeprefix("foster.").split(":"))
        for owner in modules()
        for node in nodes(owner)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE_AS_TEXT.fullmatch(node.value)
    ]
    assert len(named) > 10
    upwards = [owner for owner, target, _ in named if layer(target) > layer(owner)]
    assert [owner for owner in upwards if not is_part_of(owner, "settings")] == []
    for _, target, name in named:
        assert name in {getattr(node, "name", None) for node in tree(target).body}, f"{target}:{name}"


def test_a_method_never_imports_another_method() -> None:
    methods = {settings.__module__ for settings in map(method_class, METHOD_SETTINGS)}
    methods = {name.removeprefix("foster.") for name in methods}
    assert len(methods) == len(METHOD_SETTINGS)
    wrong = [
        f"{name} imports {other}"
        for name in modules()
        if name.startswith("methods")
        for other in imported(name)
        if other in methods
    ]
    assert not wrong, wrong


def test_settings_of_an_experiment_stop_above_the_parts() -> None:
    wrong = [
        f"{name} imports {target}"
        for name in modules()
        if any(is_part_of(name, part) for part in WITHOUT_EXPERIMENT_SETTINGS)
        for target in imported(name) & {"settings.experiment", "settings.learner", "settings.base"}
    ]
    assert not wrong, wrong


def test_nothing_knows_a_method_but_its_file_and_its_settings() -> None:
    """Neither by its class, nor by that of its settings, nor by its name."""
    classes = {settings.__name__ for settings in METHOD_SETTINGS.values()}
    classes |= {method_class(name).__name__ for name in METHOD_SETTINGS}
    wrong = [
        f"{name}:{node.lineno} {found}"
        for name in modules()
        if not any(is_part_of(name, part) for part in ("methods", "settings.methods"))
        for node in nodes(name)
        for found in methods_named(node, classes)
        if f"{name} {found}" not in NAMES_ALLOWED and name not in KNOWING_METHODS
    ]
    assert not wrong, wrong


def methods_named(node: ast.AST, classes: set[str]) -> Iterator[str]:
    """The methods that a piece of a module imports or names."""
    if isinstance(node, ast.ImportFrom):
        yield from ({alias.name for alias in node.names} & classes)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        # The package and its command have the name of a method.
        yield from ({node.value} & (METHOD_SETTINGS.keys() - {"foster"}))
    elif isinstance(node, ast.Compare) or (isinstance(node, ast.AnnAssign) and node.value is not None):
        parts = [*node.comparators, node.left] if isinstance(node, ast.Compare) else [node.value]
        yield from (part.value for part in parts if isinstance(part, ast.Constant) and part.value == "foster")
    elif isinstance(node, ast.arguments):
        defaults = [*node.defaults, *node.kw_defaults]
        yield from (part.value for part in defaults if isinstance(part, ast.Constant) and part.value == "foster")


@pytest.mark.parametrize("name", METHOD_SETTINGS)
def test_a_method_takes_the_settings_of_its_name(name: str) -> None:
    found = method_class(name)
    assert issubclass(found, Method)
    (base,) = [base for base in found.__orig_bases__ if get_args(base)]  # type: ignore[attr-defined]
    assert get_args(base) == (METHOD_SETTINGS[name],)


def test_nothing_unpickles_but_the_reader_that_admits_only_published_data() -> None:
    forbidden = {"eval", "exec", "pickle.load", "pickle.loads", "torch.load", "marshal.load", "marshal.loads"}
    wrong = [f"{name} {call}" for name in modules() for call, _ in calls(name) if call in forbidden]
    assert wrong == ["networks.pretrained torch.load"], wrong
    assert "weights_only=True" in ast.unparse(tree("networks.pretrained"))
    users = {
        name
        for name in modules()
        for node in nodes(name)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and {"pickle", "dill", "cloudpickle", "joblib", "shelve"}
        & {getattr(node, "module", None), *(alias.name for alias in node.names)}
    }
    assert users == {"data.cifar"}


def test_there_is_one_backward_pass() -> None:
    users = {name for name in modules() for call, _ in calls(name) if call.endswith(".backward")}
    assert {name for name in users if not is_part_of(name, "kernels")} == {"training.step"}


def test_nothing_sets_or_needs_a_global_seed() -> None:
    seeds = {"torch.manual_seed", "torch.seed", "torch.cuda.manual_seed_all", "random.seed", "np.random.seed"}
    wrong = [f"{name}:{line} {call}" for name in modules() for call, line in calls(name) if call in seeds]
    assert not wrong, wrong


DELIBERATE_WAITS = {"data.feed begun.popleft().synchronize"}
"""Streamed images would fill the device if the host went too far ahead."""


@pytest.mark.parametrize("part", ["losses", "methods", "training.step", "data.feed"])
def test_a_training_step_never_waits_for_the_device(part: str) -> None:
    wrong = [
        f"{name}:{line} {call}"
        for name in modules()
        if is_part_of(name, part)
        for call, line in calls(name)
        if call.endswith((".item", ".synchronize")) and f"{name} {call}" not in DELIBERATE_WAITS
    ]
    assert not wrong, wrong
