"""The command line, regency: click commands, data on stdout, words on stderr."""
