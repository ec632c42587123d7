"""One `learn`: what is decided first (`request`), then in closed form (`closed_form`) or by training (`train`)."""

import time

from foster.experiment.parts import check_engine
from foster.learner.closed_form import learn_in_closed_form
from foster.learner.knowledge import Change
from foster.learner.reports import LearnReport
from foster.learner.request import Request, choose
from foster.learner.train import learn_by_training
from foster.settings.learner import CLOSED_FORM
from foster.training.engine import find_device
from foster.training.memory_errors import explained_memory_errors


def learn(request: Request) -> Change[LearnReport]:
    """Learn the classes of the photos, new ones and more of known ones."""
    settings, began = request.settings, time.monotonic()
    check_engine(settings.engine, settings.device)
    with explained_memory_errors(find_device(settings.device)):
        chosen = choose(request)
        if chosen.method == CLOSED_FORM:
            return learn_in_closed_form(request, chosen, began)
    return learn_by_training(request, chosen, began)
