"""Process sets: groups of ranks that communicate among themselves."""

from sirtaki.core.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
