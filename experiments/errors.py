"""What can go wrong in an experiment.

    ExperimentError
    ├── ConfigurationError     a configuration file or an argument without sense
    ├── UnavailableError       something that is needed is not on this machine
    └── MeasurementError       a measurement went wrong; the others go on
        ├── ProcessFailedError   a measured process did not start, or ended too early
        └── MachineLimitError    the machine is too small for it
            └── UntriedError     it was for less already

Whatever else a measurement raises counts as a failed one, too: a run goes on.
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


class MachineLimitError(MeasurementError):
    """The machine is too small for a measurement; there is no use in trying it again."""


class UntriedError(MachineLimitError):
    """A measurement was not tried, because the machine is too small for a smaller one."""
