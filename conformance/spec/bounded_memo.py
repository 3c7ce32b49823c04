"""Results that are kept while there is room, and computed again when they are needed once more."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Result = TypeVar("Result")


class BoundedMemo(Generic[Result]):
    """Results by key. Beyond a limit in bytes, those that were used longest ago are dropped."""

    def __init__(self, limit: int, size_of: Callable[[Result], int]) -> None:
        """Start empty. limit: in bytes of all results. size_of: the bytes of one."""
        self._limit = limit
        self._size_of = size_of
        self._size = 0
        self._results: OrderedDict[Hashable, Result] = OrderedDict()
        self._lock = Lock()

    def once(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """The result with this key, computed if it is not kept."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
        result = compute()
        with self._lock:
            if key not in self._results:
                self._results[key] = result
                self._size += self._size_of(result)
            while self._size > self._limit and len(self._results) > 1:
                _, dropped = self._results.popitem(last=False)
                self._size -= self._size_of(dropped)
        return result

    def forget(self, key: Hashable) -> None:
        """Drop a result that nobody needs any more, if it is kept."""
        with self._lock:
            if key in self._results:
                self._size -= self._size_of(self._results.pop(key))
