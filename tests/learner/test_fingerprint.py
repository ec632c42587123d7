"""Fingerprints: equal where the same would be learned, and in words where not."""

from typing import Any

from foster.learner.fingerprint import difference
from foster.settings.learner import learner_settings


def of(known: str = "", pictures: str = "a", unlabeled: str = "", **settings: Any) -> dict[str, Any]:
    nested = learner_settings(**settings).nested()
    return {"settings": nested, "known": known, "images": pictures, "unlabeled": unlabeled}


def test_what_differs_is_told_in_words() -> None:
    assert difference(of(), of()) is None
    assert difference(of(seed=1), of(seed=2)) == "with seed = 1, which is 2 now"
    assert difference(of(foster={"beta_boost": 0.5}), of()) is not None
    assert difference(of(known="x"), of(known="y")) == "from another bundle"
    assert difference(of(pictures="a"), of(pictures="b")) == "of other images"
    assert difference(of(unlabeled="a"), of()) == "with other unlabeled images"


def test_where_it_computes_makes_no_difference() -> None:
    assert difference(of(device="cpu"), of(device="cuda")) is None
