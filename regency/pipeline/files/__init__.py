"""Files of jobs: found by names and globs, read whatever state they are in, published all or nothing.

Comes in:   paths of this machine or of Hadoop's file systems.
Goes out:   lines, with what was malformed; a directory that appears complete or not at all (`publishing`).
Hands out:  files, history_files, publishing.
Imports:    the pipeline's errors; no job.
Rule:       a place that is taken is never overwritten unless that was said.
Threads:    the driver; files of Hadoop through the session's JVM.
Tests:      tests/unit/pipeline.
"""
