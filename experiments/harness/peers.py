"""Find the programs of others: in ``.run/peers`` (``tests/peers/install``) or ``TPF_PEERS``."""

import hashlib
import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from annotations.whole_files import replaced_path
from experiments.errors import UnavailableError

_INSTALL = "run tests/peers/install"
_COMUNICA_NODE = 22


def _folder() -> Path:
    return Path(os.environ.get("TPF_PEERS", Path(__file__).parents[2] / ".run/peers"))


def node_modules() -> Path:
    """Return the folder of the npm packages."""
    return _folder() / "node_modules"


def package(name: str) -> Path:
    """Return the folder of an npm package, or raise `UnavailableError`."""
    folder = node_modules() / name
    if not (folder / "package.json").is_file():
        raise UnavailableError(f"{name} is not in {node_modules().name}: {_INSTALL}")
    return folder


@cache
def nodes() -> tuple[tuple[str, str], ...]:
    """List the installed Nodes with versions, the peers' own first."""
    result = []
    for candidate in (str(node_modules() / ".bin/node"), shutil.which("node")):
        if candidate is None or not Path(candidate).is_file():
            continue
        version = _output(candidate, "--version")
        if version:
            result.append((candidate, version))
    return tuple(result)


def new_node() -> str:
    """Return a Node new enough for Comunica, or raise `UnavailableError`."""
    for command, version in nodes():
        if int(version.lstrip("v").partition(".")[0]) >= _COMUNICA_NODE:
            return command
    raise UnavailableError(f"no Node >= {_COMUNICA_NODE} found: {_INSTALL}")


@cache
def hdt_node() -> str | None:
    """Return a Node that can load the compiled package ``hdt``, if any."""
    folder = node_modules() / "hdt"
    for command, _ in nodes():
        script = f"require({json.dumps(str(folder))}); console.log('loaded')"
        if _output(command, "-e", script) == "loaded":
            return command
    return None


@cache
def hdt_converter() -> Path | None:
    """Build a converter to HDT once, with the package's own library, if possible."""
    source = Path(__file__).with_name("native") / "ntriples_to_hdt.cpp"
    version = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    program = node_modules().parent / f"ntriples-to-hdt-{version}"
    if program.is_file():
        return program
    shipped = node_modules() / "hdt/deps"
    compiled = node_modules() / "hdt/build/Release/obj.target/hdt/deps"
    # The program brings the parser that this one would look for.
    objects = [path for path in sorted(compiled.rglob("*.o")) if path.name != "RDFParser.o"]
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None or not objects or hdt_node() is None:
        return None
    cds = shipped / "libcds/src"
    includes = [
        shipped / "libhdt/include", shipped / "libhdt/src/rdf", shipped / "libhdt/src/dictionary",
        shipped / "libcds/include", cds / "static/permutation",
    ]  # fmt: skip
    # npm leaves these out of the package's build, which only reads.
    missing = [*sorted((cds / "utils").glob("*.cpp")), *sorted(includes[-1].glob("*.cpp"))]
    command = [
        compiler, "-O2", "-w", "-DHAVE_CDS", *(f"-I{folder}" for folder in includes),
        str(source), *map(str, missing), *map(str, objects), "-o",
    ]  # fmt: skip
    try:
        with replaced_path(program, durable=False) as new:
            subprocess.run(  # noqa: S603
                [*command, str(new)], capture_output=True, timeout=300, check=True
            )
    except (OSError, subprocess.SubprocessError):
        return None
    return program


def program(name: str, package: str, *folders: str) -> str:
    """Return the path of a Debian package's program, or raise `UnavailableError`."""
    path = shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))
    if path is None:
        raise UnavailableError(
            f"no {name} found: install Debian's package {package}, or as root {_INSTALL}"
        )
    return path


def nginx() -> str:
    """Return the path of nginx, or raise `UnavailableError`."""
    return program("nginx", "nginx", "/usr/sbin")


def versions() -> dict[str, str]:
    """Return the versions of the installed peers."""
    result = {f"Node ({place})": version for place, version in _named_nodes()}
    for name in ("@ldf/server", "@comunica/query-sparql", "hdt"):
        try:
            manifest = json.loads((package(name) / "package.json").read_text(encoding="utf-8"))
            result[name] = str(manifest["version"])
        except UnavailableError:
            result[name] = "not here"
    return result


def _named_nodes() -> list[tuple[str, str]]:
    inside = str(node_modules())
    return [("npm" if c.startswith(inside) else "system", version) for c, version in nodes()]


def _output(*command: str) -> str:
    try:
        answer = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
