"""Queries of a page, evaluated in the page's web worker (Pyodide) or any event loop.

The worker calls `start` and `stop`; everything comes back through the function ``post``, which
gets one JSON text for each event: ``{"id": …, "event": name, "data": {…}}``. Nothing is posted for
a query after `stop`.

A message to `start` is the JSON text of an object:

================  ==============================================================================
``id``            names the query in its events and for `stop`: a string or number
``sources``       the URLs of the datasets, which are read as one
``query``         SPARQL 1.1
``mode``          ``watch``: keep the answer up to date; ``once``: answer it once;
                  ``words``: the predicates and classes of the datasets (without ``query``)
``at``            with ``once``: an instant in the past (ISO 8601)
``min-interval``  with ``watch``: seconds between two evaluations at least; 1 if absent or ``""``
``max-interval``  with ``watch``: seconds between two evaluations at most
``grace``         with ``watch``: seconds for which a fact stays whose label ended unrenewed
================  ==============================================================================

Seconds may be numbers or texts, as the fields of a form have them.

Events of ``watch``; those of the first four rows are the ones of ``tpf-query serve``:

==============  ================================================================================
``initial``     the whole answer: ``vars``, ``at``, ``valid_until``, ``next_look``, ``added``
                (bindings of SPARQL JSON), ``valid`` (from when until when each holds),
                ``removed`` (none), ``boolean`` for ASK; posted again after the query was
                started anew
``update``      what changed, in the same form, with ``places`` where the query orders
``up-to-date``  after each evaluation: ``at``, ``now`` (the server's clock), ``valid_until``,
                ``next_look``, ``dynamic``, ``rows``, ``late``, ``warnings``; ``pages``,
                ``requests``, ``bytes``, ``cached`` of this query so far; ``endpoint``: the last
                three of all queries of this worker
``plan``        ``datasets``, ``steps``, ``tree``, ``seconds``; after the first evaluation, and
                after others where a count changed
``error``       an evaluation failed: ``error``, ``at``, ``now``, ``next_look``, which says when
                it is tried again. It always is
``work``        while an evaluation lasts, some times a second: ``requests``, ``bytes``, ``cached``
                and ``endpoint``, as above
``refused``     the query is wrong, and nothing more comes: ``status`` 400, ``text`` (one line
                that begins with ``line L, column C:`` where that is known, then the place), and
                ``line`` and ``column``, or null
==============  ================================================================================

Events of ``once``: ``rows`` as they come (``vars``, ``added``, ``valid``: all of these are new;
``places`` where the query orders; ``boolean`` for ASK), ``work``, ``plan``, and at the end one
``done`` (``rows``, ``requests``, ``bytes``, ``cached``, ``endpoint``), ``refused``, or ``failed``
(``error``; it is not tried again). The triples of CONSTRUCT and DESCRIBE are rows of ``subject``,
``predicate`` and ``object``.

Events of ``words``: ``words`` with ``predicates`` and ``classes`` (IRIs, what occurs most often
first), or ``failed``.
"""

from collections.abc import Callable
from typing import TypeAlias

Post: TypeAlias = Callable[[str], object]
"""Takes the JSON text of an event."""


def start(message: str, post: Post) -> None:
    """Begin what a message asks for; returns at once.

    Args:
        message: the JSON text of an object; see above.
        post: gets the events.

    Raises:
        ValueError: the message is not of that form.
    """
    raise NotImplementedError


def stop(query_id: str | int) -> None:
    """Stop a query and its requests; one that is not running is left alone."""
    raise NotImplementedError
