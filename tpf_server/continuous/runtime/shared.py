"""What the parts of an engine share: settings, terms, static data, streams and queries."""

from collections.abc import Sequence
from typing import Any

from annotations.terms import Term
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.inlined import inlined_literal
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_client.sparql.iris import is_absolute, resolve
from tpf_server.continuous.runtime.clock import StreamClocks, Waits
from tpf_server.continuous.runtime.elements.elements import (
    canonical_term,
    canonical_triple,
    date_time_at,
)
from tpf_server.continuous.runtime.errors import ElementError
from tpf_server.continuous.runtime.forgetting import Forgetting
from tpf_server.continuous.runtime.semantics import EngineLimits, EngineSettings
from tpf_server.continuous.runtime.static.static_data import StaticData
from tpf_server.continuous.runtime.windows.matchers import EncodedTriple
from tpf_server.continuous.runtime.windows.streams import ElementStream


class Shared:
    """The state of an engine, beside its queries.

    Attributes:
        forgetting: of terms that nobody needs.
        arriving: encoded elements that are on their way into windows.
        clocks: of its streams.
        queries: of all languages, by name.
    """

    forgetting: Forgetting

    def __init__(self, settings: EngineSettings, limits: EngineLimits, patience: int) -> None:
        self.settings = settings
        self.limits = limits
        self.static = StaticData()
        self.dictionary = TermDictionary(permanent=False)
        self.environment = Environment(TypedTerms(self.dictionary), date_time_at(0))
        self.dictionary.on_forget(self.environment.forget)
        self.arriving: list[Sequence[EncodedTriple]] = []
        self.streams: dict[Term, ElementStream] = {}
        self.clocks = StreamClocks(self.streams, Waits(patience=patience))
        self.queries: dict[str, Any] = {}
        self.abandoned = False

    def name(self, text: str) -> Term:
        """The term of an IRI, which may be relative, or of a term already."""
        if text.startswith("<"):
            return Term(text)
        return Term(f"<{text if is_absolute(text) else resolve(self.settings.base, text)}>")

    def encoded(self, element: Sequence[Any]) -> list[EncodedTriple]:
        """Return the integers of an element from outside, or raise `ElementError`."""
        if not isinstance(element, Sequence):
            raise ElementError(f"neither a triple nor triples: {element!r}")
        if element and isinstance(element[0], str):
            return [self._encode_triple(element)]
        return [self._encode_triple(each) for each in element]

    def _encode_triple(self, triple: Sequence[str]) -> EncodedTriple:
        if isinstance(triple, Sequence) and len(triple) == 3:
            known_triple = self.known_triple(*triple)
            if known_triple is not None:
                return known_triple
        elif isinstance(triple, str) or not isinstance(triple, Sequence):
            raise ElementError(f"neither a triple nor triples: {triple!r}")
        encode = self.dictionary.encode
        s, p, o = canonical_triple(triple, self._canonical)
        return encode(s), encode(p), encode(o)

    def known_triple(self, s: Any, p: Any, o: Any) -> EncodedTriple | None:
        """Return the integers of terms that are known; ``None``: look more closely."""
        id_of = self.dictionary.find
        try:
            subject = id_of(s)
            predicate = id_of(p)
            object_ = id_of(o)
            if object_ is None and o:
                object_ = inlined_literal(o)
        except (TypeError, AttributeError):
            return None
        if subject is None or predicate is None or object_ is None:
            return None
        # What `may_begin` says, without the call.
        if s[0] == '"' or p[0] != "<" or s[1] == "<" or p[1] == "<":
            return None
        return subject, predicate, object_

    def _canonical(self, text: str) -> Term:
        # Who is in the table came through here.
        return Term(text) if self.dictionary.find(text) else canonical_term(text)

    def encode(self, term: str) -> int:
        """Return the integer of a term from outside, or raise `ElementError`."""
        term_id = self.dictionary.find(term)
        return self.dictionary.encode(canonical_term(term)) if term_id is None else term_id
