"""How the C library's allocator treats the buffers of large requests and answers. GNU libc only; elsewhere nothing."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""

LARGEST_KEPT_BYTES = 32 << 20
"""Larger ones are mapped and given back one by one, as all above 128 KiB are by default. It takes no higher limit."""

KEPT_FREE_BYTES = 64 << 20
"""Free memory at the end of a heap that is not given back."""


def keep_large_buffers() -> bool:
    """Use the memory of large buffers again instead of giving it back; whether the allocator takes that.

    A megabyte that was just mapped is 256 page faults, each zeroing a page that is then written over: three quarters of
    what a consumer's fetch costs an agent otherwise. The price is KEPT_FREE_BYTES per heap, and what lies below
    a buffer still in use: nothing may keep even a small part of a large one that is done with.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LARGEST_KEPT_BYTES) and mallopt(_TRIM_THRESHOLD, KEPT_FREE_BYTES))
