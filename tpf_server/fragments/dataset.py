"""A dataset that is served: its settings and its open stores."""

from dataclasses import dataclass, field

from tpf_server.fragments.overlap import Overlap
from tpf_server.settings import PLAIN, DatasetSettings
from tpf_server.store.protocols import LiveStore, StaticStore


@dataclass(frozen=True, slots=True)
class OpenDataset:
    """A dataset with its open stores; either may be missing.

    Args:
        settings: name, page size, annotation and so on.
        static: quads that do not change.
        live: labelled facts.
    """

    settings: DatasetSettings
    static: StaticStore | None = None
    live: LiveStore | None = None
    overlap: Overlap | None = field(init=False, default=None)
    """The quads that are in both stores."""

    def __post_init__(self) -> None:
        if self.static is not None and self.live is not None:
            object.__setattr__(self, "overlap", Overlap(self.static, self.live))

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the views at ``/{dataset}/{view}``; none without live facts."""
        return self.settings.views if self.live is not None else ()

    @property
    def has_plain_view(self) -> bool:
        """Whether there is a URL that shows live facts as their own quads."""
        return self.live is not None and (
            PLAIN in self.settings.views or self.settings.annotation == PLAIN
        )

    def close(self) -> None:
        """Close both stores."""
        if self.overlap is not None:
            self.overlap.close()
        for store in (self.static, self.live):
            if store is not None:
                store.close()
