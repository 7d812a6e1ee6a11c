"""The broker agent daemon: keeps the log, replicates it, serves clients. Imported as regency.broker_agent."""
