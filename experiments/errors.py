"""What can go wrong in an experiment.

    ExperimentError
    ├── ConfigurationError     a configuration file or an argument without sense
    ├── UnavailableError       something that is needed is not on this machine
    └── MeasurementError       a measurement went wrong; the others go on
        └── ProcessFailedError   a measured process did not start, or ended too early

Of a library that is measured, its own root errors (and `OSError`) count as failed measurements.
"""


class ExperimentError(Exception):
    """Root of the errors of this package."""


class ConfigurationError(ExperimentError):
    """A configuration file or an argument without sense."""


class UnavailableError(ExperimentError):
    """Something that is needed is not on this machine; the text says what, and how to get it."""


class MeasurementError(ExperimentError):
    """A measurement went wrong."""


class ProcessFailedError(MeasurementError):
    """A measured process did not start, or ended too early."""
