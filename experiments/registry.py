"""The experiments, in the order in which they run and are reported."""

from experiments.client import Clients
from experiments.experiment import Experiment
from experiments.fragments import Fragments

EXPERIMENTS: tuple[Experiment, ...] = (Fragments(), Clients())


def names() -> tuple[str, ...]:
    """The names of the experiments."""
    return tuple(experiment.name for experiment in EXPERIMENTS)
