"""The experiments, in the order in which they run and are reported."""

from experiments.experiment import Experiment
from experiments.fragments import Fragments

EXPERIMENTS: tuple[Experiment, ...] = (Fragments(),)


def names() -> tuple[str, ...]:
    """The names of the experiments."""
    return tuple(experiment.name for experiment in EXPERIMENTS)
