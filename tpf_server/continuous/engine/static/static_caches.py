"""The static caches of an engine: shared by queries, moved by changes of graphs."""

from collections.abc import Callable, Sequence

from annotations.terms import QuadPattern, is_variable
from tpf_server.continuous.engine.static.static_cache import StaticCache
from tpf_server.continuous.engine.static.static_data import GraphChange


def numbered(patterns: Sequence[QuadPattern]) -> tuple[tuple[str | int, ...], ...]:
    """Patterns with their variables numbered: equal for patterns that differ in names only."""
    numbers: dict[str, int] = {}
    return tuple(
        tuple(
            numbers.setdefault(term, len(numbers)) if is_variable(term) else str(term)
            for term in pattern
        )
        for pattern in patterns
    )


class StaticCaches:
    """The caches that several queries may use, by what they hold."""

    def __init__(self) -> None:
        self._shared: dict[object, StaticCache] = {}
        self._keys: dict[StaticCache, object] = {}

    def cache(
        self, key: object, taken: Sequence[StaticCache], make: Callable[[], StaticCache]
    ) -> StaticCache:
        """The cache of this key; a new one where there is none, or where it is among `taken`.

        A query that has the same sub-query twice must see one of them change after the other.
        """
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = make()
            self._keys[found] = key
            found.refresh(None)
        elif found in taken:
            return make()
        return found

    def changing(self, change: GraphChange) -> list[Callable[[], None]]:
        """Static graphs are about to change; what is to be called afterwards."""
        return [
            cache.changing(None, change) for cache in self._shared.values() if cache.reads(change)
        ]

    def drop_idle(self) -> None:
        """Drop the caches that no query uses."""
        for cache in tuple(self._keys):
            self.drop(cache)

    def drop(self, cache: StaticCache) -> None:
        """Drop a cache, if it is one of these and no query uses it."""
        if cache in self._keys and not cache.consumers:
            del self._shared[self._keys.pop(cache)]

    def __contains__(self, cache: StaticCache) -> bool:
        return cache in self._keys

    def __len__(self) -> int:
        return len(self._shared)
