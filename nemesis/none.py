"""No fault: the healthy control, in which every replica reads every record."""

from nemesis.fault import FaultContext, start
from nemesis.script import Act, Script, nothing


def resume(context: FaultContext) -> None:
    """Start the absent brokers, as they never left."""
    start(context)
    context.cluster.wait_absent_back()


SCRIPT = Script(
    name="none",
    summary="no fault: the healthy control",
    leave=Act("no fault", nothing),
    rejoin=Act("no fault", nothing),
    resume=resume,
    soak_excluded="no fault",
)
