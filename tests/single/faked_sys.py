"""A /sys tree as the kernel makes it, for machines that are not at hand."""

from __future__ import annotations

from pathlib import Path

from sirtaki.launch.cores.processors import format_cpus


def machine(
    sysfs: Path, packages: int, nodes: int, cores: int, threads: int, interleaved: bool = False
) -> None:
    """Describe a machine; the first threads of all cores come before the second ones.

    nodes: of a package. cores: of a node. interleaved: cores next in number are in different nodes.
    """
    count = packages * nodes * cores
    by_node: dict[int, list[int]] = {}
    for core in range(count):
        node = core % (packages * nodes) if interleaved else core // cores
        siblings = [core + count * thread for thread in range(threads)]
        by_node.setdefault(node, []).extend(siblings)
        for cpu in siblings:
            folder = sysfs / f"devices/system/cpu/cpu{cpu}/topology"
            folder.mkdir(parents=True)
            (folder / "thread_siblings_list").write_text(format_cpus(siblings) + "\n")
            (folder / "physical_package_id").write_text(f"{node // nodes}\n")
    for node, cpus in by_node.items():
        folder = sysfs / f"devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(format_cpus(cpus) + "\n")
