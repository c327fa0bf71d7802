"""Errors of experiments.

ExperimentError
├── ConfigurationError     a bad configuration file or argument
├── UnavailableError       something needed is not on this machine
└── MeasurementError       a measurement failed; the others go on
    ├── ProcessFailedError   a measured process did not start, or ended too early
    └── MachineLimitError    the machine is too small for it
        └── UntriedError     the machine was too small for less already
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
