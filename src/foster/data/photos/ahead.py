"""Photos that are decoded before they are asked for, beside whatever else is done meanwhile."""

import threading
from collections.abc import Generator, Iterator
from contextlib import closing
from queue import SimpleQueue
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Ahead(Generic[Item]):
    """What a generator yields, computed in a thread of its own and kept until it is iterated over, once.

    An exception inside is raised where its item is asked for. `cancel` ends the work after the item in hand.
    """

    def __init__(self, items: Generator[Item, None, None]) -> None:
        self._done: SimpleQueue[tuple[Item] | BaseException | None] = SimpleQueue()
        self._is_cancelled = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(items,), name="ahead", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        while (done := self._done.get()) is not None:
            if isinstance(done, BaseException):
                raise done
            yield done[0]

    def cancel(self) -> None:
        self._is_cancelled.set()

    def _work(self, items: Generator[Item, None, None]) -> None:
        try:
            with closing(items):
                for item in items:
                    if self._is_cancelled.is_set():
                        break
                    self._done.put((item,))
            self._done.put(None)
        except BaseException as error:
            self._done.put(error)
