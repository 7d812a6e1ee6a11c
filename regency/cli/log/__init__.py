"""`regency log`: log directories, replicas that move between them, and dumps of log files.

`command` has the group, `log_dirs` the table of directories, the room `dump` reads files without a cluster.
"""
