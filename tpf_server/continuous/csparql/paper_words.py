"""How the paper writes C-SPARQL, where that is not how SPARQL is written."""

from tpf_client.sparql.tokens import Token


def words_of_the_paper(tokens: list[Token]) -> list[Token]:
    """Join hyphenated names, drop commas between selected variables, read ``^^ ?v`` as ``&&``."""
    result: list[Token] = []
    selecting = False
    depth = 0
    for place, token in enumerate(tokens):
        if token.kind == "word" and token.text.upper() in ("SELECT", "FROM", "WHERE"):
            selecting, depth = token.text.upper() == "SELECT", 0
        elif token.kind == "sign":
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if token.text == "{":
                selecting = False
            elif token.text == "," and selecting and not depth:
                continue
            elif token.text == "^^" and tokens[place + 1].kind == "variable":
                token = token._replace(text="&&")
        last = result[-1] if result else None
        if (
            token.kind == "word"
            and last is not None
            and len(result) > 1
            and last.text == "-"
            and last.end == token.position
            and result[-2].kind == "variable"
            and result[-2].end == last.position
            and tokens[place + 1].text != "("
        ):
            result.pop()
            name = result.pop()
            token = Token("variable", f"{name.text}-{token.text}", name.position)
        result.append(token)
    return result
