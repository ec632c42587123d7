"""A plan as a table for the terminal."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from foster.experiment.plan import Plan, TimeEstimate
from foster.system.counts import duration, size_text


def plan_table(plan: Plan) -> Group:
    """Settings in a line, a row a task, and the totals."""
    settings = plan.settings
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for name in ("task", "new", "classes", "images", "exemplars", "epochs", "steps", "parameters"):
        table.add_column(name, justify="right", no_wrap=True)
    for task in plan.tasks:
        table.add_row(
            str(task.index + 1),
            f"+{task.num_new}",
            str(task.num_total),
            f"{task.new_images:,}",
            f"{task.exemplars:,}",
            " + ".join(f"{epochs} {name}" for name, epochs, _ in task.phases)
            or ("taken over" if task.index == 0 and settings.first_task_from else "none"),
            f"{sum(steps for _, _, steps in task.phases):,}",
            f"{task.params:,}",
        )
    return Group(
        f"[bold]{settings.scenario}[/bold]: method {settings.method}, backbone {settings.backbone}, "
        f"batch {settings.batch_size}, augmentation {settings.augmentation_name}, seed {settings.seed}",
        "",
        table,
        "",
        f"in all: {plan.total_epochs:,} epochs, {plan.total_steps:,} steps; "
        f"at the end {plan.memory_images:,} exemplars, {size_text(plan.memory_bytes)} kept between tasks",
        f"estimated memory while training: {size_text(plan.training_bytes)}, and what torch itself needs",
        *_uneven(plan),
        *_photos(plan),
        _time(plan.time),
    )


def _uneven(plan: Plan) -> list[Text]:
    """A plan is made before any data is read: of classes of many sizes it knows the mean."""
    facts = plan.facts
    if facts.num_train % facts.num_classes == 0:
        return []
    return [Text("images: so many on average; the classes differ in size, and a task may have a few more or fewer")]


def _photos(plan: Plan) -> list[Text]:
    """Where photos of many sizes would be kept; nothing for images of one size."""
    sentences = {
        "device": "stay on the device",
        "host": "stay in the host's memory and travel batch by batch",
        "disk": "stay on disk (engine.photo_cache) and travel batch by batch",
        "nowhere": "fit nowhere: set engine.photo_cache=FOLDER, or choose a smaller photos.short_side",
    }
    if not plan.photos:
        return []
    size = f"{size_text(plan.photo_bytes)} of decoded photos"
    return [Text(f"photos: the largest task and the test have about {size}, which {sentences[plan.photos]}")]


def _time(time: TimeEstimate | None) -> Text:
    if time is None:
        return Text("estimated time: not known; --measure times a few steps")
    return Text(
        f"estimated time: {duration(time.seconds)}, at {time.steps_a_second:,.1f} steps a second ({time.source})"
    )
