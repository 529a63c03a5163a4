"""Whether rdmacm-utils' rping has succeeded."""


def has_pinged(status, text, pings):
    """`text`: its output with -v. Before rdma-core 59, its main thread may
    destroy the event channel just before another one asks that channel for the
    next event: rping then fails after all its pings (fixed by rdma-core's
    f3ae6534a). Only that failure counts as success."""
    return text.count("ping data: ") == pings and (
        status == 0 or "rdma_get_cm_event: " in text)
