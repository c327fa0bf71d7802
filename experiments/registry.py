"""The experiments, in the order in which they run and are reported."""

from experiments.annotation_methods import AnnotationMethods
from experiments.citybench import CityBenchQueries
from experiments.client import Clients
from experiments.conference import ConferenceQueries
from experiments.cost_model import CostModel
from experiments.csparql import PeriodicQueries
from experiments.experiment import Experiment
from experiments.fragments import Fragments
from experiments.load import Load
from experiments.server_vs_client import ServerVsClient
from experiments.taxi import TaxiQueries

EXPERIMENTS: tuple[Experiment, ...] = (
    ServerVsClient(),
    CostModel(),
    CityBenchQueries(),
    AnnotationMethods(),
    Fragments(),
    Clients(),
    Load(),
    ConferenceQueries(),
    PeriodicQueries(),
    TaxiQueries(),
)


def names() -> tuple[str, ...]:
    """The names of the experiments."""
    return tuple(experiment.name for experiment in EXPERIMENTS)
