"""Virtual time, processes and their actors: what everything else of the simulation runs on."""
