"""What the disks and databases below the stores raise."""

import sqlite3
import sys


def store_failures() -> tuple[type[Exception], ...]:
    """Errors of the operating system and of SQLite; of PostgreSQL where a store has loaded it."""
    psycopg = sys.modules.get("psycopg")
    return (OSError, sqlite3.Error, *(() if psycopg is None else (psycopg.Error,)))
