"""Which plans of an engine take batches of records as columns (see `FusedStream`)."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from tpf_client.dataflow.kernels import Kernel, kernel_asked, kernel_in_use, why_not_compiled
from tpf_server.continuous.engine.delivery import Phase
from tpf_server.continuous.engine.plans.batch_report import (
    EVERY,
    FAILED,
    OFF,
    OTHERS,
    OTHERWISE,
    REORDERED,
    UNFIT,
    batch_report,
)
from tpf_server.continuous.engine.plans.fused_plan import FusedPlan
from tpf_server.continuous.engine.plans.fused_stream import FusedStream
from tpf_server.continuous.engine.plans.fusible import plan_shape
from tpf_server.continuous.engine.plans.plan import Plan


class Fusion:
    """Knows the plans that can, and those that do.

    Args:
        plans: of the engine.
        phase: of the engine.
        kernel: what keeps the state of a plan; ``None``: what the environment says.
        reorders: whether elements wait for late ones: they are put in order one by one.

    Attributes:
        active: the plans whose state is with them, and not with their operators.
    """

    def __init__(
        self, plans: Mapping[Plan, None], phase: Phase, kernel: Kernel | None, *, reorders: bool
    ) -> None:
        self.active: FusedStream | None = None
        self._plans = plans
        self._phase = phase
        self._kernel = kernel_in_use(kernel)
        self._refusal = REORDERED if reorders else None
        if self._kernel == "off":
            missing = None if kernel_asked(kernel) == "off" else why_not_compiled()
            self._refusal = missing or OFF
        self._fused: dict[Plan, FusedPlan] = {}
        self._together: FusedStream | None = None

    def added(self, plan: Plan) -> None:
        """There is one more plan."""
        self._together = None
        # Who emits at every arrival wants to be asked at every one.
        refusal = self._refusal or (None if plan.delivery.silent else EVERY)
        shape = None if refusal else plan_shape(plan)
        if shape is not None:
            self._fused[plan] = FusedPlan(plan, shape, self._kernel)
        plan.batches = partial(self._report, plan, refusal or OTHERWISE)

    def _report(self, plan: Plan, refusal: str) -> dict[str, Any]:
        """How a plan takes batches of records now; after it windows say what they hold."""
        if self.active is not None:
            self.active.trim()
        found = self._fused.get(plan)
        if found is None:
            return batch_report("off", reason=refusal)
        if len(self._plans) != len(self._fused):
            return batch_report("off", reason=OTHERS)
        failure = self._together.failure if self._together is not None else None
        if failure is not None:
            error = f"{type(failure).__name__}: {failure}"
            return batch_report("off", reason=f"{FAILED}: {error}")
        if any(each.unfit for each in self._fused.values()):
            # The operators took them in the place of all plans.
            return batch_report("off", reason=UNFIT if found.unfit else OTHERS)
        return batch_report(self._kernel, found.operators)

    def removed(self, plan: Plan) -> None:
        """A plan is gone."""
        self._together = None
        self._fused.pop(plan, None)

    @property
    def together(self) -> FusedStream | None:
        """All plans, if all of them can."""
        if len(self._plans) != len(self._fused) or not self._fused:
            return None
        if self._together is None:
            self._together = FusedStream(list(self._fused.values()), self._phase)
        return self._together

    def holders(self) -> list[object]:
        """What holds terms and is not with the operators; where nothing can tell, it is again."""
        found = [] if self.active is None else self.active.holders()
        if found is None:
            self.settle(briefly=True)
        return found or []

    def settle(self, *, briefly: bool = False) -> None:
        """The operators get back what is theirs.

        Args:
            briefly: only to be looked at: what comes next may be taken again.
        """
        if self.active is not None:
            active, self.active = self.active, None
            active.settle(briefly=briefly)
