"""Processes that work on log directories and kill themselves at a named place, and what is found there then."""
