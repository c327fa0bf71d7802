"""Errors of experiments.

ExperimentError
├── ConfigurationError
├── UnavailableError
└── MeasurementError
    ├── ProcessFailedError
    └── MachineLimitError
        └── UntriedError
"""


class ExperimentError(Exception):
    """Root of the errors of this package."""


class ConfigurationError(ExperimentError):
    """A bad configuration file or argument."""


class UnavailableError(ExperimentError):
    """Something needed is not on this machine; the text says how to get it."""


class MeasurementError(ExperimentError):
    """A measurement failed."""


class ProcessFailedError(MeasurementError):
    """A measured process did not start, or ended too early."""


class MachineLimitError(MeasurementError):
    """The machine is too small for a measurement; do not retry."""


class UntriedError(MachineLimitError):
    """A measurement was skipped: the machine was too small for a smaller one."""
