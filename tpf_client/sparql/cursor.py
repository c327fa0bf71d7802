"""A cursor over the tokens of a text, which reads tokens and RDF terms."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from annotations.errors import TermError
from annotations.namespaces import XSD
from annotations.nesting import most_written
from annotations.terms import Term, Variable, iri, literal
from tpf_client.errors import QuerySyntaxError, UnsupportedQueryError
from tpf_client.sparql.depth import check_levels
from tpf_client.sparql.iris import is_absolute, resolve
from tpf_client.sparql.tokens import Token, string_content, tokenize, unescape

_DIGITS = 18
_NUMBERS = {"integer": XSD + "integer", "decimal": XSD + "decimal", "double": XSD + "double"}
_RDF_TYPE = Term("<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>")


class Cursor:
    """A position in the tokens of a text, with prefixes and base."""

    def __init__(self, text: str, base: str | None = None) -> None:
        self.text = text
        self.base = base
        self.prefixes: dict[str, str] = {}
        self._tokens = tokenize(text)
        self._index = 0
        self._hidden = 0
        self._levels = 0
        self._left = most_written(len(text))

    # ----------------------------------------------------------------------------- tokens

    @property
    def token(self) -> Token:
        return self._tokens[self._index]

    def ahead(self, steps: int = 1) -> Token:
        return self._tokens[min(self._index + steps, len(self._tokens) - 1)]

    def advance(self) -> Token:
        """Step over the token under the cursor and return it."""
        token = self._tokens[self._index]
        if token.kind != "end":
            self._index += 1
        return token

    def at(self, *signs: str) -> bool:
        token = self.token
        return token.kind == "sign" and token.text in signs

    def at_word(self, *words: str) -> bool:
        """True at one of these keywords (in upper case)."""
        token = self.token
        return token.kind == "word" and token.text.upper() in words

    def take(self, sign: str) -> bool:
        """Step over this sign, if it is there."""
        if not self.at(sign):
            return False
        self._index += 1
        return True

    def take_word(self, word: str) -> bool:
        """Step over this keyword, if it is there."""
        if not self.at_word(word):
            return False
        self._index += 1
        return True

    def expect(self, sign: str) -> Token:
        """Step over this sign, which must be there."""
        if not self.at(sign):
            self.expected(f"'{sign}'")
        return self.advance()

    def expect_word(self, word: str) -> Token:
        """Step over this keyword, which must be there."""
        if not self.at_word(word):
            self.expected(word)
        return self.advance()

    def expected(self, what: str) -> NoReturn:
        """Raise an error: something else is under the cursor."""
        token = f"'{self.token.text}'" if self.token.text else "the end of the query"
        self.fail(f"expected {what}, found {token}")

    def whole_number(self, what: str = "a number") -> int:
        if self.token.kind != "integer":
            self.expected(what)
        if len(self.token.text) > _DIGITS:
            self.fail(f"a number of more than {_DIGITS} digits")
        return int(self.advance().text)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Read a level of brackets; `UnsupportedQueryError` if too deep."""
        self._levels += 1
        check_levels(self._levels)
        yield
        self._levels -= 1

    def fail(self, reason: str, position: int | None = None) -> NoReturn:
        """Raise an error at the token under the cursor, or at a position."""
        raise QuerySyntaxError(
            reason, self.text, self.token.position if position is None else position
        )

    def refuse(self, reason: str, position: int) -> NoReturn:
        """Raise an `UnsupportedQueryError` that names a position."""
        raise UnsupportedQueryError(str(QuerySyntaxError(reason, self.text, position)))

    def fresh(self, hint: str = "") -> Variable:
        """Make a hidden variable that occurs nowhere else."""
        self._hidden += 1
        return Variable(f"?.{hint}{self._hidden}")

    # ------------------------------------------------------------------------------ terms

    def variable(self) -> Variable:
        """Step over a variable, which must be there."""
        if self.token.kind != "variable":
            self.expected("a variable")
        return Variable("?" + self.advance().text[1:])

    def at_iri(self) -> bool:
        return self.token.kind in ("iri", "name")

    def iri(self) -> Term:
        """Step over an IRI, full or prefixed, which must be there."""
        token = self.token
        if token.kind == "iri":
            value = self._checked(unescape, token.text[1:-1])
            self.advance()
            return self._absolute(value, token)
        if token.kind != "name":
            self.expected("an IRI")
        self.advance()
        prefix, _, local = token.text.partition(":")
        if prefix not in self.prefixes:
            self.fail(f"unknown prefix '{prefix}:'", token.position)
        return self._absolute(self.prefixes[prefix] + local.replace("\\", ""), token)

    def verb_iri(self) -> Term:
        """Step over an IRI or the word ``a``."""
        if self.token.kind == "word" and self.token.text == "a":
            self.advance()
            return _RDF_TYPE
        return self.iri()

    def _absolute(self, value: str, token: Token) -> Term:
        if not is_absolute(value):
            if self.base is None:
                self.fail(f"relative IRI <{value}> without a BASE", token.position)
            value = resolve(self.base, value)
        # A prefix or a base is written out before each name that it is used for.
        self._left -= len(value)
        if self._left < 0:
            self.fail("with its prefixes written out, the query is too long", token.position)
        try:
            return iri(value)
        except TermError as error:
            self.fail(str(error), token.position)

    def _checked(self, function: Callable[[str], str], argument: str) -> str:
        try:
            return function(argument)
        except ValueError as error:
            self.fail(str(error))

    def at_literal(self) -> bool:
        """True at a literal (a signed number too)."""
        if self.token.kind in ("string", "integer", "decimal", "double"):
            return True
        return self.at_word("TRUE", "FALSE") or self.at_signed_number()

    def at_signed_number(self) -> bool:
        """True at a sign directly before a number."""
        return (
            self.at("+", "-")
            and self.ahead().kind in _NUMBERS
            and self.ahead().position == self.token.end
        )

    def literal(self) -> Term:
        """Step over a literal, which must be there."""
        token = self.token
        if self.at_signed_number():
            self.advance()
            number = self.advance()
            return literal(token.text + number.text, datatype=_NUMBERS[number.kind])
        if token.kind in _NUMBERS:
            self.advance()
            return literal(token.text, datatype=_NUMBERS[token.kind])
        if self.at_word("TRUE", "FALSE"):
            self.advance()
            return literal(token.text.lower(), datatype=XSD + "boolean")
        if token.kind != "string":
            self.expected("a literal")
        content = self._checked(string_content, token.text)
        self.advance()
        if self.token.kind == "language":
            tag = self.advance()
            try:
                return literal(content, language=tag.text[1:])
            except TermError as error:
                self.fail(str(error), tag.position)
        if self.take("^^"):
            return literal(content, datatype=self.iri()[1:-1])
        return literal(content)

    def string(self) -> str:
        """Step over a plain string, which must be there."""
        if self.token.kind != "string":
            self.expected("a string")
        content = self._checked(string_content, self.token.text)
        self.advance()
        return content
