"""Exceptions of the disks and databases below the stores."""

import sqlite3
import sys


def store_failures() -> tuple[type[Exception], ...]:
    """Return the errors of the system and of SQLite; of PostgreSQL where it is loaded."""
    psycopg = sys.modules.get("psycopg")
    return (OSError, sqlite3.Error, *(() if psycopg is None else (psycopg.Error,)))
