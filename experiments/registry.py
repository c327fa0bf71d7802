"""The experiments, in the order in which they run and are reported."""

from experiments.harness.experiment import Experiment
from experiments.studies.adaptivity import Adaptivity
from experiments.studies.annotation_methods import AnnotationMethods
from experiments.studies.change_signal import SignalOrPolling
from experiments.studies.citybench import CityBenchQueries
from experiments.studies.client import Clients
from experiments.studies.conference import ConferenceQueries
from experiments.studies.cost_model import CostModel
from experiments.studies.csparql import PeriodicQueries
from experiments.studies.fragments import Fragments
from experiments.studies.load import Load
from experiments.studies.page_readers import PageReaders
from experiments.studies.server_vs_client import ServerVsClient
from experiments.studies.sharing import Sharing
from experiments.studies.taxi import TaxiQueries
from experiments.studies.ticks import ClientTicks

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
    Sharing(),
    Adaptivity(),
    SignalOrPolling(),
    ClientTicks(),
    PageReaders(),
)


def names() -> tuple[str, ...]:
    """The names of the experiments."""
    return tuple(experiment.name for experiment in EXPERIMENTS)
