"""The predicates and classes that a dataset uses, as far as a sample of its pages shows.

Fragments do not list them. The first page of everything, and of what has a type, tells how many
pages there are; some that lie far apart show what the data are about for a few dozen requests.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from annotations.namespaces import RDF_TYPE
from annotations.terms import QuadPattern, Term, is_iri
from tpf_client.fragments.fetcher import Fetcher, Request
from tpf_client.fragments.page import Page
from tpf_client.planner.driver import Task
from tpf_client.planner.fragment_source import ANYTHING, FragmentSource
from tpf_client.planner.reading import foretell, together

SAMPLED = 12
"""Pages of each fragment that are looked at, beside the first."""
_MOST = 500
"""Words of a kind that are told."""
_ALL_PAGES = 1_000_000


@dataclass(frozen=True, slots=True)
class Words:
    """What a dataset is described with, what occurs most often first.

    Args:
        predicates: IRIs of predicates.
        classes: IRIs of classes.
    """

    predicates: tuple[str, ...]
    classes: tuple[str, ...]


def words_of(fetcher: Fetcher, urls: Iterable[str]) -> Task[Words]:
    """The words of some datasets together.

    Args:
        fetcher: gets the pages.
        urls: of the datasets.

    Raises:
        SourceError: a page could not be had.
    """
    typed = ANYTHING._replace(predicate=RDF_TYPE)
    tasks = [
        _sampled(FragmentSource(fetcher, url), pattern)
        for url in urls
        for pattern in (ANYTHING, typed)
    ]
    predicates: Counter[Term] = Counter()
    classes: Counter[Term] = Counter()
    for pages in (yield from together(tasks)):
        for fact in (fact for page in pages for fact in page.facts):
            predicates[fact.quad.predicate] += 1
            if fact.quad.predicate == RDF_TYPE:
                classes[fact.quad.object] += 1
    return Words(_most(predicates), _most(classes))


def _sampled(source: FragmentSource, pattern: QuadPattern) -> Task[list[Page]]:
    form = yield from source.form()
    (first,) = yield [Request(form.url(pattern))]
    following = first.metadata.next_page
    if following is None:
        return [first]
    others = foretell(following, 1, first, _ALL_PAGES)
    # Both ends are among them.
    places = dict.fromkeys(n * (len(others) - 1) // (SAMPLED - 1) for n in range(SAMPLED))
    rest = yield [Request(others[place]) for place in places]
    return [first, *rest]


def _most(counts: Counter[Term]) -> tuple[str, ...]:
    return tuple(term[1:-1] for term, _ in counts.most_common(_MOST) if is_iri(term))
