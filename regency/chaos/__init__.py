"""Faults for tests and demos: the TCP proxy that drops, delays, half-opens, or loses one reply."""
