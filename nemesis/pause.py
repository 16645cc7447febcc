"""SIGSTOP: the broker is frozen with everything in its memory, and goes on where it was.

As a long garbage collection or a suspended virtual machine does it. A fetch that is on its way when the
broker freezes may still be answered, with what is written within ``replica.fetch.wait.max.ms``: nothing may be
written before that is over. The runner waits until the broker has left every ISR, which takes longer.
"""

from nemesis.fault import Nemesis, each

NEMESIS = Nemesis(
    name="pause",
    summary="SIGSTOP, and SIGCONT once the window is over",
    leaving="pause broker {broker}",
    returning="resume broker {broker}",
    inject=each(lambda context, broker: context.cluster.runtime.pause(broker)),
    heal=each(lambda context, broker: context.cluster.runtime.resume(broker)),
    lives_on=True,
)
