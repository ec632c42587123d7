"""The base of methods with a cosine head."""

from collections.abc import Sequence

from foster.methods.base import Method, SettingsType
from foster.networks import cosine_variant
from foster.networks.heads import CosineHead
from foster.networks.network import Network


def cosine_head(network: Network) -> CosineHead:
    """The cosine head of a network."""
    assert isinstance(network.head, CosineHead)
    return network.head


class CosineMethod(Method[SettingsType]):
    """A method whose network is one backbone and a cosine head with `num_proxies` proxies a class."""

    @property
    def num_proxies(self) -> int:
        return 1

    @classmethod
    def backbone_name(cls, name: str) -> str:
        return cosine_variant(name)

    def new_head(self, in_features: int, task_sizes: Sequence[int]) -> CosineHead:
        return CosineHead(in_features, sum(task_sizes), self.num_proxies, num_old=sum(task_sizes[:-1]))
