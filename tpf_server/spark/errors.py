"""Errors of starting Spark, each one line for the user.

SparkError                   Spark is not available, did not start, or gave up
├── SparkSettingError        a setting that there is not
└── SparkMissingError        what Spark needs is not installed
    └── JavaNotFoundError    no Java of a version that Spark can use
"""

from typing import ClassVar


class SparkError(Exception):
    """Root of the errors of this package: Spark is not available, did not start, or gave up."""

    exit_status: ClassVar[int] = 1
    """With which a command ends that raises it."""


class SparkSettingError(SparkError, ValueError):
    """A setting that there is not."""

    exit_status = 2


class SparkMissingError(SparkError):
    """What Spark needs is not installed: PySpark, or a Java."""


class JavaNotFoundError(SparkMissingError):
    """No Java of a version that Spark can use."""
