"""Background jobs in separate processes: start, queue, follow, cancel, resume."""

VARIABLE = "ICL_CURATE_JOB"
"""Set in the environment of a process that is a job: the folder it reports to."""
