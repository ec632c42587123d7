"""Replay with a mean teacher (Tarvainen, Valpola, NeurIPS 2017), the moving average of the network's weights.

The network and the teacher see two views of each image; the loss has the squared difference of their probabilities.
After every step the teacher's weights become decay * its weights + (1 - decay) * the network's. The teacher is the
result of the task.
"""

import copy

from foster import FitSettings, Method, MethodSettings, Phase, freeze, register_method
from foster.losses import cross_entropy


class MeanTeacherSettings(MethodSettings):
    summary = "replay with consistency between the network and the moving average of its weights"
    paper = "Tarvainen, Valpola: Mean teachers are better role models. NeurIPS 2017"
    first: FitSettings = FitSettings(epochs=100)
    later: FitSettings = FitSettings(epochs=70)
    decay: float = 0.99
    weight: float = 1.0


@register_method("mean-teacher")
class MeanTeacher(Method[MeanTeacherSettings]):
    def phases(self, task):
        network = self.grow(task)
        teacher = self.network = freeze(copy.deepcopy(network))
        decay, weight = self.settings.decay, self.settings.weight

        def objective(batch):
            one, other = batch.views
            logits = network(one).logits
            disagreement = (logits.softmax(1) - teacher(other).logits.softmax(1)).square().sum(1).mean()
            return {"L_CE": cross_entropy(logits, batch.labels), "L_agree": weight * disagreement}

        def after_step():
            for mean, now in zip(teacher.state_dict().values(), network.state_dict().values(), strict=True):
                mean.lerp_(now, 1 - decay) if mean.is_floating_point() else mean.copy_(now)

        schedule = self.settings.first if task.is_first else self.settings.later
        yield Phase(
            "learn", network, objective, schedule, task.training, (teacher,), after_step=after_step, num_views=2
        )
        self.remember(task)
