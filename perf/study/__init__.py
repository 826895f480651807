"""Scaling studies and the scripts of batch jobs."""
