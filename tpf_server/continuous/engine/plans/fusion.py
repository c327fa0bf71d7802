"""Which plan of an engine takes batches of records as columns (see `FusedPlan`)."""

from collections.abc import Mapping

from tpf_client.dataflow.kernels import Kernel, kernel_in_use
from tpf_server.continuous.engine.delivery import Phase
from tpf_server.continuous.engine.plans.fused_plan import FusedPlan, fused_plan
from tpf_server.continuous.engine.plans.plan import Plan


class Fusion:
    """Knows the plans that can, and the one that does.

    Args:
        plans: of the engine.
        phase: of the engine.
        kernel: what keeps the state of a plan; ``None``: what the environment says.

    Attributes:
        active: the plan whose state is with it, and not with its operators.
    """

    def __init__(self, plans: Mapping[Plan, None], phase: Phase, kernel: Kernel | None) -> None:
        self.active: FusedPlan | None = None
        self._plans = plans
        self._phase = phase
        self._kernel = kernel_in_use(kernel)
        self._fused: dict[Plan, FusedPlan] = {}

    def added(self, plan: Plan) -> None:
        """There is one more plan."""
        found = fused_plan(plan, self._kernel, self._phase)
        if found is not None:
            self._fused[plan] = found
            plan.batches = {"kernel": self._kernel, "operators": ["window", "groups", "order"]}

    def removed(self, plan: Plan) -> None:
        """A plan is gone."""
        self._fused.pop(plan, None)

    @property
    def only(self) -> FusedPlan | None:
        """The only plan, if it can."""
        return self._fused.get(next(iter(self._plans))) if len(self._plans) == 1 else None

    def settle(self) -> None:
        """The operators get back what is theirs."""
        if self.active is not None:
            active, self.active = self.active, None
            active.settle()
