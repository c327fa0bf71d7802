"""What the IRIs of continuous queries are relative to, where nobody says anything else."""

from typing import Final

BASE: Final = "http://localhost/"
