"""The jobs of `regency pipeline`. They take a session and values, and know nothing of the command line."""
