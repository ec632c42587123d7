"""What progress says, event by event."""

import dataclasses
import math

from foster import events
from foster.reports import progress as texts


def epoch(**losses: float) -> events.EpochEnded:
    return events.EpochEnded(
        task=1, phase="boost", epoch=0, epochs=9, losses=losses, learning_rate=0.1, seconds=1.0, seconds_left=8.0
    )


def test_losses_are_a_sum_of_named_terms_or_one_number():
    assert texts.losses_text(epoch(L_CE=0.5), is_learn=False) == "loss 0.500"
    both = epoch(L_LA=0.9, L_KD=0.334)
    assert texts.losses_text(both, is_learn=False) == "loss 1.234 = L_LA 0.900 + L_KD 0.334"
    assert texts.losses_text(both, is_learn=True) == "loss 1.234"
    assert texts.losses_text(epoch(L_LA=0.9, total=7.0), is_learn=False) == "loss 7.000"


def test_a_learn_speaks_without_the_words_of_the_paper():
    assert texts.where_text(epoch(), 5, is_learn=False) == "task 2/5 boost"
    assert texts.where_text(epoch(), 1, is_learn=True) == "learning the new classes beside the known ones"


def test_accuracies_that_are_not_there_are_left_out():
    found = events.Evaluated(
        task=0, variant="head", accuracy=50.0, top5=math.nan, old_accuracy=None, new_accuracy=50.0, per_task=(50.0,)
    )
    assert texts.evaluated_text(found, 3, is_learn=False) == "task 1/3 head: 50.00 % (new 50.00)"


def test_a_learn_tells_its_accuracy_in_plain_words():
    first = events.Evaluated(
        task=0, variant="boosted", accuracy=96.67, top5=100.0, old_accuracy=None, new_accuracy=96.67, per_task=(96.67,)
    )
    assert texts.evaluated_text(first, 1, is_learn=True) == "learned: 96.67 % of held-out images"
    second = dataclasses.replace(first, task=1, accuracy=91.11, old_accuracy=93.33, new_accuracy=88.89)
    assert texts.evaluated_text(second, 2, is_learn=True) == (
        "before compression: 91.11 % of held-out images (known 93.33, new 88.89)"
    )


def test_a_run_between_two_tasks_resumes_at_no_phase():
    assert texts.resumed_text(events.RunResumed(task=2, phase="", epoch=0), 5) == "resumed at task 3/5"
    assert (
        texts.resumed_text(events.RunResumed(task=2, phase="boost", epoch=3), 5) == "resumed at task 3/5 boost, epoch 4"
    )
    done = events.RunResumed(task=2, phase="boost", epoch=0, is_phase_done=True)
    assert texts.resumed_text(done, 5) == "resumed at task 3/5 after boost"


def test_a_download_of_unknown_length_has_no_end():
    assert texts.received_text(events.Downloading("x", 3 * 2**20, None)) == "3.0 MiB"
    assert texts.received_text(events.Downloading("x", 3 * 2**20, 6 * 2**20)) == "3.0 of 6.0 MiB"


def test_the_first_task_knows_nothing():
    started = events.TaskStarted(task=0, num_tasks=5, num_new=2, num_known=0, num_images=1234)
    assert texts.task_started_text(started) == "task 1/5: 2 new classes, none known, 1,234 images"


def test_decoded_photos_are_told_with_their_size_place_and_rate() -> None:
    event = events.PhotosDecoded("task 2", 1300, 0, 2**30, "device", seconds=2.0)
    assert texts.decoded_text(event) == "1,300 photos of task 2: 1.0 GiB on the device, in 2 s (650 a second)"


def test_a_learn_that_goes_on_speaks_of_no_task_and_no_phase():
    told = texts.resumed_text(events.RunResumed(task=1, phase="boost", epoch=2), 2, is_learn=True)
    assert told == "going on where it stopped: learning the new classes beside the known ones, epoch 3"
    told = texts.resumed_text(events.RunResumed(task=1, phase="compress again", epoch=0), 2, is_learn=True)
    assert told == "going on where it stopped: compressing both into one network again, epoch 1"
