"""The framework-neutral layer: lifecycle, topology, process sets, handles, collectives."""
