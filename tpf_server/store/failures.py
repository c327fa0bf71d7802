"""Name the exceptions of disks and databases."""

import sqlite3
import sys


def store_failures() -> tuple[type[Exception], ...]:
    """Return the errors of the system and of SQLite, and of PostgreSQL where it is loaded."""
    psycopg = sys.modules.get("psycopg")
    return (OSError, sqlite3.Error, *(() if psycopg is None else (psycopg.Error,)))
