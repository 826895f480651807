"""Studies over ranks or choices, and the scripts of batch jobs."""
