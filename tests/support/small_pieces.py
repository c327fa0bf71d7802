"""A command of ours whose loads cut small files as they would large ones.

``python -m tests.support.small_pieces tpf-load rdf …`` gives a load that is killed midway several
pieces, ranges and tasks.
"""

import signal
import sys
from typing import Any, Final

from loaders.rdf.build import WorkSizes, load_rdf_spark
from tpf_client import commands

PIECE_BYTES: Final = 1 << 20
"""Two pieces are what is longer than this."""
SIZES: Final = WorkSizes(piece_bytes=PIECE_BYTES, chunk_quads=5_000, range_rows=20_000, small=1_000)


def main(arguments: list[str]) -> None:
    """Run a command."""
    load: Any = load_rdf_spark
    load.__kwdefaults__["sizes"] = SIZES
    # A shell starts what runs in the background deaf to this signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = arguments
    commands.main()


if __name__ == "__main__":
    main(sys.argv[1:])
