"""The files of one log between two offsets: batches, their two indexes, and reads that find damage.

A segment has `.log`, `.index` and `.timeindex`; `segments` are all of a log in order. `checked_read` judges bytes
before they are handed to anybody; `index_building` makes an index from its batches.

Comes in:   whole batches to append, offsets and times to look up.
Goes out:   bytes of whole batches, places in files, `damage` where bytes are not what was written.
Hands out:  Segments, Segment, OpenFiles (a bounded pool of descriptors).
Imports:    the disk and `regency.kafka`'s formats; no file of the room around it but `errors`.
Threads:    the data loop; reads of large ranges may run on a worker.
"""
