"""Background jobs in separate processes: start, queue, follow, cancel, resume."""

from ..store.numbers import JOB as VARIABLE

__all__ = ["OBSERVED", "STANDBY", "VARIABLE"]

OBSERVED = "ICL_CURATE_EVENTS"
"""An environment variable of a command that another program watches: the folder for its progress events."""

STANDBY = "ICL_CURATE_STANDBY"
"""An environment variable of a process that waits for a command: the number of the socket over which it comes."""
