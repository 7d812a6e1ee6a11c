"""`regency log`: log directories, replicas that move between them, and dumps of log files.

`command` has the group and the directories, the room `dump` reads files without a cluster.
"""
