from pathlib import Path

import pytest
from made_once import made_once
from tiny_runs import start, tiny_settings


@pytest.fixture(scope="session")
def kept_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of tiny runs of foster and finetune that kept their networks."""
    methods = ("foster", "finetune")

    def make(folder: Path) -> None:
        # Noise has as good as no structure: what is frozen is wrong often enough.
        for method in methods:
            start(tiny_settings(method, "keep_networks=true", "synthetic.test_per_class=12"), folder / method)

    folder = made_once(tmp_path_factory, "kept-runs", make)
    return {method: folder / method for method in methods}


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of two learns of digits, a few photos each."""

    def make(folder: Path) -> None:
        from sklearn.datasets import load_digits

        import foster

        digits = load_digits()
        images = (digits.images * 255 / 16).astype("uint8")
        names = digits.target.astype(str)
        learner = foster.Learner(training="fast", backbone="resnet8", memory_total=60, epochs_scale=0.015, device="cpu")
        for wanted in (("0", "1", "2"), ("3", "4")):
            index = [k for name in wanted for k in (names == name).nonzero()[0][:40]]
            learner.learn(images[index], names[index].tolist())
        learner.save(folder / "digits")

    return made_once(tmp_path_factory, "digits-bundle", make) / "digits"
