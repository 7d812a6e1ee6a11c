"""Faults: which there are, when they come in a run, and how they are done."""
