"""The experiments, in the order in which they run and are reported: what matters most first."""

from collections.abc import Mapping

from experiments.harness.experiment import Experiment
from experiments.studies.adaptivity import Adaptivity
from experiments.studies.annotation_methods import AnnotationMethods
from experiments.studies.citybench import CityBenchQueries
from experiments.studies.client import Clients
from experiments.studies.conference import ConferenceQueries
from experiments.studies.cost_model import CostModel
from experiments.studies.csparql import PeriodicQueries
from experiments.studies.fragments import Fragments
from experiments.studies.load import Load
from experiments.studies.server_vs_client import ServerVsClient
from experiments.studies.taxi import TaxiQueries
from experiments.studies.ticks import ClientTicks

EXPERIMENTS: tuple[Experiment, ...] = (
    ServerVsClient(),
    CostModel(),
    Fragments(),
    AnnotationMethods(),
    ConferenceQueries(),
    TaxiQueries(),
    PeriodicQueries(),
    CityBenchQueries(),
    Clients(),
    Load(),
    Adaptivity(),
    ClientTicks(),
)
STUDY_MINUTES: Mapping[str, float] = {
    "server-vs-client": 30, "cost-model": 0.1, "fragments": 7, "annotation-methods": 33,
    "conference": 20, "taxi": 4, "csparql": 26, "citybench": 28, "client": 12, "load": 9,
    "adaptivity": 2, "ticks": 12,
}  # fmt: skip
"""About what a full run of each takes, on two cores with nothing else to do."""


def names() -> tuple[str, ...]:
    """The names of the experiments."""
    return tuple(experiment.name for experiment in EXPERIMENTS)
