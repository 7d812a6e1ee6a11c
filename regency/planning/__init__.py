"""Pure planning: where replicas go. No clock, no I/O, no unsorted iteration."""
