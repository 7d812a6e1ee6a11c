"""`regency log dump`: what stands in the files of a log directory, read only, and whether it is sound."""
