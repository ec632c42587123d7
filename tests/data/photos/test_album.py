"""Albums: photos of many sizes from files, memory and the disk cache, kept in several places."""

import gc
import weakref
from pathlib import Path

import pytest
import torch
from photo_folders import files_of, photo

from foster.data.images import ImageSet, concatenate, on_device
from foster.data.memory import ExemplarMemory
from foster.data.photos.album import Album
from foster.data.photos.darkroom import Darkroom
from foster.data.photos.encoded import PhotoBytes
from foster.errors import DataError

CPU = torch.device("cpu")


def test_selected_and_joined_albums_share_pixels_and_give_the_same_images(folder: Path) -> None:
    first, second = (Album.of(files_of(folder), Darkroom(32, 40)) for _ in range(2))
    both = first.joined(second)[torch.tensor([2, 17, 29, 2])]
    whole = on_device(first[torch.tensor([2, 14])], CPU)
    assert torch.equal(on_device(both, CPU), whole[torch.tensor([0, 0, 1, 0])])
    assert both.shape == (4, 3, 32, 32)


def test_the_memory_keeps_encoded_files_and_loads_them_again(folder: Path) -> None:
    room = Darkroom(32, 40)
    album = Album.of(files_of(folder), room)
    album.developed()
    memory = ExemplarMemory(per_class=3, darkroom=room)
    for class_id in range(3):
        memory.remember(class_id, album[torch.arange(5 * class_id, 5 * class_id + 3)])
    content = (folder / "class 1" / "1.jpg").read_bytes()
    for path in folder.rglob("*.jpg"):
        path.unlink()
    state = memory.state()
    assert state.keys() == {"contents", "lengths", "counts"}
    again = ExemplarMemory(per_class=3, darkroom=room)
    again.load_state(state)
    kept, loaded = (found.exemplars(("a", "b", "c")) for found in (memory, again))
    assert kept is not None
    assert loaded is not None
    assert isinstance(loaded.stack, Album)
    assert loaded.stack.contents()[4] == content
    assert again.num_bytes == memory.num_bytes == len(state["contents"])
    assert torch.equal(on_device(kept.stack, CPU), on_device(album[torch.tensor([0, 1, 2, 5, 6, 7, 10, 11, 12])], CPU))
    again.trim(3)
    damaged = state | {"lengths": state["lengths"] + 1}
    with pytest.raises(DataError, match="damaged"):
        again.load_state(damaged)


def test_pixels_go_when_nobody_needs_their_task_any_more(folder: Path) -> None:
    whole = Album.of(files_of(folder), Darkroom(32, 40))
    task = ImageSet(whole[torch.arange(5, 15)], torch.arange(10), tuple("abcdefghij"))
    own = ImageSet(task.stack.apart("task 1"), task.labels, task.class_names).readable()  # type: ignore[union-attr]
    both = concatenate(own, own)
    assert len(both) == 20
    store = weakref.ref(own.stack._stores[0])  # type: ignore[union-attr]
    assert not whole._stores[0].is_developed.any()
    del own, both
    gc.collect()
    assert store() is None


def test_kept_photos_need_no_files() -> None:
    album = Album.of(PhotoBytes([photo(0, k) for k in range(3)]), Darkroom(16, 20))
    assert on_device(album, CPU).shape == (3, 3, 16, 16)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_photos_on_the_device_and_on_the_host_are_cut_together(folder: Path) -> None:
    device = torch.device("cuda", 0)
    there, here = (Album.of(files_of(folder), Darkroom(32, 40, device, place)) for place in ("device", "host"))
    for album in (there, here):
        album.developed()
    chosen = torch.tensor([2, 17, 29, 2, 14, 16])
    mixed, plain = there.joined(here)[chosen], here.joined(here)[chosen]
    assert torch.equal(on_device(mixed, device), on_device(plain, device))
    assert mixed.gathered(device).are_sent.tolist() == [False, True, True, False, False, True]
    assert torch.equal(on_device(mixed, CPU), on_device(plain, CPU))
