"""Long work in a process of its own: start, queue, follow, cancel, resume."""

VARIABLE = "ICL_CURATE_JOB"
"""Set in the environment of a process that is a job: the folder it reports to."""
