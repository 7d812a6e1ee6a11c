"""`regency pipeline`: jobs that run on Spark. No module here imports Spark before a job starts: it is an extra."""
