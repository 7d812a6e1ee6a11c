"""Facts, names, formats: what every layer may import. Imports nothing of ours."""
