"""What progress says, event by event."""

import math

from foster import events
from foster.settings.methods import METHOD_SETTINGS
from foster.system.counts import counted, duration, size_text


def in_plain_words(what: str) -> str:
    """The name of a phase or variant of a `learn`, for a reader who has photos and no paper; a phase may have been
    started again."""
    words = {"learn": "learning"}
    for method in METHOD_SETTINGS.values():
        words |= method.plain_words
    name = what.removesuffix(" again")
    return words.get(name, name) + what.removeprefix(name)


def run_started(event: events.RunStarted) -> str:
    folder = f", in {event.folder}" if event.folder else ""
    return f"{event.method} on {event.scenario}: {counted(event.num_tasks, 'task')} on {event.device}{folder}"


def resumed(event: events.RunResumed, num_tasks: int, is_learn: bool = False) -> str:
    """Between two tasks there is no phase yet."""
    phase = in_plain_words(event.phase) if is_learn else event.phase
    reached = f"after {phase}" if event.is_phase_done else f"{phase}, epoch {event.epoch + 1}" if phase else ""
    if is_learn:
        return f"going on where it stopped: {reached}"
    return f"resumed at task {event.task + 1}/{num_tasks} {reached}".rstrip()


def task_started(event: events.TaskStarted) -> str:
    known = f"{event.num_known} known" if event.num_known else "none known"
    what = f"{counted(event.num_new, 'new class')}, {known}, {counted(event.num_images, 'image')}"
    return f"task {event.task + 1}/{event.num_tasks}: {what}"


def losses(event: events.EpochEnded, is_learn: bool) -> str:
    """`loss 1.234 = L_LA 0.900 + L_KD 0.334`, or the total alone where it has one term."""
    terms = {name: value for name, value in event.losses.items() if name != "total"}
    total = event.losses.get("total", sum(terms.values()))
    if len(terms) < 2 or is_learn:
        return f"loss {total:.3f}"
    return f"loss {total:.3f} = " + " + ".join(f"{name} {value:.3f}" for name, value in terms.items())


def received(event: events.Downloading) -> str:
    """`48.3 of 161.2 MiB`, or `48.3 MiB` where the end is not known."""
    end = f" of {event.num_total / 2**20:.1f}" if event.num_total else ""
    return f"{event.num_received / 2**20:.1f}{end} MiB"


def decoding(event: events.Decoding) -> str:
    return f"{'checking' if event.was_there else 'decoding'} {event.what}"


def decoded(event: events.PhotosDecoded) -> str:
    rate = event.num_photos / max(event.seconds, 1e-3)
    where = {"device": "on the device", "host": "in memory", "disk": "on disk"}[event.place]
    time = f"in {duration(event.seconds)} ({rate:,.0f} a second)"
    return f"{event.num_photos:,} photos of {event.what}: {size_text(event.num_bytes)} {where}, {time}"


def where(
    event: events.PhaseStarted | events.EpochEnded | events.PhaseEnded | events.Evaluated,
    num_tasks: int,
    is_learn: bool,
) -> str:
    """Where the training stands; a `learn` has one task, and its phases in words that need no paper."""
    what = event.variant if isinstance(event, events.Evaluated) else event.phase
    if is_learn and isinstance(event, events.Evaluated) and event.task == 0:
        return "learned"  # a first learn has one variant
    return in_plain_words(what) if is_learn else f"task {event.task + 1}/{num_tasks} {what}"


def planned(event: events.LearnPlanned) -> list[str]:
    needed = f"about {duration(event.seconds)} and {size_text(event.num_bytes)} of memory, measured on a few steps"
    return [*event.lines, needed]


def evaluated(event: events.Evaluated, num_tasks: int, is_learn: bool) -> str:
    # A group of classes without a test image has no accuracy.
    names = ("known", "new", "") if is_learn else ("old", "new", "top-5")
    groups = zip(names, (event.old_accuracy, event.new_accuracy, event.top5), strict=True)
    known = [f"{name} {value:.2f}" for name, value in groups if name and value is not None and not math.isnan(value)]
    details = f" ({', '.join(known)})" if known and not (is_learn and len(known) == 1) else ""
    of_what = " of held-out images" if is_learn else ""
    return f"{where(event, num_tasks, is_learn)}: {event.accuracy:.2f} %{of_what}{details}"


def run_ended(event: events.RunEnded) -> str:
    return (
        f"average incremental accuracy {event.average_incremental_accuracy:.2f} %, "
        f"final {event.final_accuracy:.2f} %, in {duration(event.seconds)}"
    )
