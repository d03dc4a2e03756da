"""Stages as data, one plan, and the loop that runs what is missing; knows nothing of Ray."""
