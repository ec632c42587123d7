"""Randomness with an address."""

import itertools

import torch

from foster.seeding import Address, generator, initialisation, random_layers

BASE = Address(seed=1, purpose="feed", task=2, phase="boost", epoch=3)


def draw(address: Address) -> list[float]:
    return torch.rand(4, generator=generator(address)).tolist()


def test_the_same_address_gives_the_same_numbers_whatever_was_drawn_before() -> None:
    first = draw(BASE)
    torch.rand(1000)
    draw(Address(9, "other"))
    assert draw(BASE) == first


def test_every_part_of_an_address_matters() -> None:
    others = [
        Address(2, "feed", 2, "boost", 3),
        Address(1, "food", 2, "boost", 3),
        Address(1, "feed", 1, "boost", 3),
        Address(1, "feed", 2, "compress", 3),
        Address(1, "feed", 2, "boost", 4),
    ]
    drawn = [draw(address) for address in (BASE, *others)]
    assert all(one != other for one, other in itertools.combinations(drawn, 2))


def test_a_number_is_the_same_in_every_version_and_on_every_machine() -> None:
    # printf '1/feed/2/boost/3' | sha256sum, its first 16 digits without the last bit.
    assert BASE.number() == 0x3B39FB1204052B1D // 2
    assert all(0 <= Address(seed, "x").number() < 2**63 for seed in range(1000))


def test_weights_made_at_an_address_depend_on_it_alone_and_leave_the_global_generator_as_it_was() -> None:
    def weights(address: Address) -> torch.Tensor:
        with initialisation(address):
            return torch.nn.Linear(3, 3).weight.detach()

    torch.manual_seed(0)
    expected = torch.rand(5)
    torch.manual_seed(0)
    first = weights(BASE)
    assert torch.equal(torch.rand(5), expected)
    assert torch.equal(weights(BASE), first)
    assert not torch.equal(weights(Address(1, "feed", 2, "boost", 4)), first)


def test_random_layers_draw_by_the_number_given_last_and_leave_the_global_generator_as_it_was() -> None:
    layer, values = torch.nn.Dropout(0.5), torch.ones(64)
    before = torch.get_rng_state()
    with random_layers(torch.device("cpu")) as seed:
        drawn = []
        for number in (7, 8, 7, 2**63 + 5):
            seed(number)
            drawn.append(layer(values))
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(torch.get_rng_state(), before)
