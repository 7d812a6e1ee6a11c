"""Spark jobs under random kills, and what a plain consumer says of their rows afterwards."""
