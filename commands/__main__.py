"""``python -m commands tpf-query …``: a command where no scripts are installed."""

import sys

from commands import main

if __name__ == "__main__":
    del sys.argv[0]
    main()
