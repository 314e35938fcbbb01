"""Process sets: groups of ranks that communicate among themselves."""

from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.core.world.registration import add_process_set, remove_process_set
