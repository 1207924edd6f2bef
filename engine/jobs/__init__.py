"""Background jobs in separate processes: start, queue, follow, cancel, resume."""

VARIABLE = "ICL_CURATE_JOB"
"""An environment variable of a job's process: the job's folder."""
