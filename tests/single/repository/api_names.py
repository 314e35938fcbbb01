"""Every public name of Horovod 0.28.1 that this version answers for, and the page about them.

`python -m tests.single.repository.api_names`, from the repository's root, writes
docs/design/api-coverage.md anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[3] / "docs/design/api-coverage.md"


class Group(NamedTuple):
    """Names of one Horovod module that are tested in one file.

    horovod: the module in Horovod. where: ours, that has the very same objects. test: the file with
    their tests. names: one a line, as `name(parameters)`, `name=value` or just `name`; a method
    has its class in front.
    """

    title: str
    horovod: str
    where: str
    test: str
    names: str

    def lines(self) -> list[str]:
        return [line.strip() for line in self.names.strip().splitlines()]


TORCH = "horovod.torch"
PARALLEL = "tests/parallel/torch"
SINGLE = "tests/single"

REDUCE = """average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
 process_set=global_process_set""".replace("\n", "")
COMPRESS = REDUCE.replace("op=None", "compression=Compression.none, op=None")
SCATTER = """op=Average, process_set=global_process_set, prescale_factor=1.0,
 postscale_factor=1.0""".replace("\n", "")

LIFECYCLE = """init(comm=None, process_sets=None)
shutdown()
is_initialized()
size()
rank()
local_size()
local_rank()
cross_size()
cross_rank()
mpi_threads_supported()
mpi_enabled()
mpi_built()
gloo_enabled()
gloo_built()
nccl_built()
ddl_built()
ccl_built()
cuda_built()
rocm_built()"""

GROUPS = [
    Group(
        "Lifecycle and topology",
        TORCH,
        "sirtaki.core.facade",
        f"{SINGLE}/test_lifecycle.py",
        LIFECYCLE,
    ),
    Group(
        "Lifecycle, below the top level",
        "horovod.torch.mpi_ops",
        "sirtaki.core.facade",
        f"{SINGLE}/test_lifecycle.py",
        "is_homogeneous()",
    ),
    Group(
        "Timeline",
        TORCH,
        "sirtaki.core.world.state",
        f"{SINGLE}/test_observing.py",
        """start_timeline(file_path, mark_cycles=False)
        stop_timeline()""",
    ),
    Group(
        "All of these as methods",
        "horovod.common.basics",
        "sirtaki.core.basics",
        f"{SINGLE}/test_lifecycle.py",
        """HorovodBasics
        HorovodBasics._get_process_set_ids_and_ranks()""",
    ),
    Group(
        "Process sets",
        TORCH,
        "sirtaki.core.facade",
        f"{SINGLE}/test_lifecycle.py",
        """ProcessSet(ranks_or_comm)
        ProcessSet.rank()
        ProcessSet.size()
        ProcessSet.included()
        ProcessSet.ranks
        ProcessSet.process_set_id
        ProcessSet.mpi_comm
        global_process_set
        add_process_set(process_set)
        remove_process_set(process_set)""",
    ),
    Group(
        "Reduction constants",
        TORCH,
        "sirtaki.core.operations.reduce_ops",
        f"{SINGLE}/torch/test_names.py",
        """Average=0
        Sum=1
        Adasum=2
        Min=3
        Max=4
        Product=5""",
    ),
    Group(
        "Exceptions",
        "horovod.common.exceptions",
        "sirtaki.core.errors",
        f"{SINGLE}/test_lifecycle.py",
        """HorovodInternalError
        HostsUpdatedInterrupt""",
    ),
    Group(
        "Exceptions of Horovod's build",
        "horovod.common.exceptions",
        "horovod.common.exceptions",
        f"{SINGLE}/test_lifecycle.py",
        """HorovodVersionMismatchError(name, version, installed_version)
        get_version_mismatch_message(name, version, installed_version)""",
    ),
    Group(
        "Allreduce",
        TORCH,
        "sirtaki.torch.ops.allreduce",
        f"{PARALLEL}/test_allreduce.py",
        f"""allreduce(tensor, {COMPRESS})
        allreduce_async(tensor, {REDUCE})
        allreduce_(tensor, {REDUCE})
        allreduce_async_(tensor, {REDUCE})
        grouped_allreduce(tensors, {COMPRESS})
        grouped_allreduce_async(tensors, {REDUCE})
        grouped_allreduce_(tensors, {REDUCE})
        grouped_allreduce_async_(tensors, {REDUCE})""",
    ),
    Group(
        "Sparse allreduce",
        TORCH,
        "sirtaki.torch.ops.sparse",
        f"{PARALLEL}/test_allreduce.py",
        "sparse_allreduce_async(tensor, name, op, process_set=global_process_set)",
    ),
    Group(
        "Allgather, broadcast, alltoall",
        TORCH,
        "sirtaki.torch.ops.exchange",
        f"{PARALLEL}/test_exchange.py",
        """allgather(tensor, name=None, process_set=global_process_set)
        allgather_async(tensor, name=None, process_set=global_process_set)
        grouped_allgather(tensors, name=None, process_set=global_process_set)
        grouped_allgather_async(tensors, name=None, process_set=global_process_set)
        broadcast(tensor, root_rank, name=None, process_set=global_process_set)
        broadcast_async(tensor, root_rank, name=None, process_set=global_process_set)
        broadcast_(tensor, root_rank, name=None, process_set=global_process_set)
        broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set)
        alltoall(tensor, splits=None, name=None, process_set=global_process_set)
        alltoall_async(tensor, splits=None, name=None, process_set=global_process_set)""",
    ),
    Group(
        "Reducescatter",
        TORCH,
        "sirtaki.torch.ops.reducescatter",
        f"{PARALLEL}/test_reducescatter.py",
        f"""reducescatter(tensor, name=None, compression=Compression.none, {SCATTER})
        reducescatter_async(tensor, name=None, {SCATTER})
        grouped_reducescatter(tensors, name=None, compression=Compression.none, {SCATTER})
        grouped_reducescatter_async(tensors, name=None, {SCATTER})""",
    ),
    Group(
        "Join",
        TORCH,
        "sirtaki.torch.ops.handles",
        f"{PARALLEL}/test_join.py",
        "join(device=-1)",
    ),
    Group(
        "Barrier",
        TORCH,
        "sirtaki.torch.ops.handles",
        f"{PARALLEL}/test_process_sets.py",
        "barrier(process_set=global_process_set)",
    ),
    Group(
        "Handles",
        TORCH,
        "sirtaki.torch.ops.handles",
        f"{PARALLEL}/test_errors.py",
        """poll(handle)
        synchronize(handle)""",
    ),
    Group(
        "Exchange of state",
        TORCH,
        "sirtaki.torch.functions",
        f"{PARALLEL}/test_functions.py",
        """broadcast_parameters(params, root_rank)
        broadcast_object(obj, root_rank=0, name=None, process_set=global_process_set)
        allgather_object(obj, name=None)""",
    ),
    Group(
        "Exchange of optimizer state",
        TORCH,
        "sirtaki.torch.gradients.optimizer_state",
        f"{PARALLEL}/test_functions.py",
        "broadcast_optimizer_state(optimizer, root_rank, model=None)",
    ),
    Group(
        "Compression",
        TORCH,
        "sirtaki.torch.compression",
        f"{PARALLEL}/test_allreduce.py",
        """Compression
        Compression.fp16""",
    ),
    Group(
        "No compression",
        TORCH,
        "sirtaki.torch.compression",
        f"{SINGLE}/repository/test_api_coverage.py",
        """Compression.none
        Compression.none.compress(tensor)
        Compression.none.decompress(tensor, ctx)""",
    ),
    Group(
        "Optimizer",
        TORCH,
        "sirtaki.torch.optimizer",
        f"{PARALLEL}/test_optimizer.py",
        """DistributedOptimizer(optimizer, named_parameters=None, compression=Compression.none,
 backward_passes_per_step=1, op=Average, gradient_predivide_factor=1.0, num_groups=0,
 groups=None, sparse_as_dense=False, process_set=global_process_set)""".replace("\n", ""),
    ),
    Group(
        "Methods of the wrapped optimizer",
        "horovod.torch.optimizer",
        "sirtaki.torch.optimizer",
        f"{PARALLEL}/test_optimizer.py",
        """_DistributedOptimizer.synchronize()
        _DistributedOptimizer.skip_synchronize()
        _DistributedOptimizer.set_backward_passes_per_step(passes)
        _DistributedOptimizer.step(closure=None)
        _DistributedOptimizer.zero_grad()""",
    ),
    Group(
        "State of the wrapped optimizer",
        "horovod.torch.optimizer",
        "sirtaki.torch.optimizer",
        f"{PARALLEL}/test_optimizer_in_use.py",
        "_DistributedOptimizer.load_state_dict",
    ),
    Group(
        "Layers",
        TORCH,
        "sirtaki.torch.sync_batch_norm",
        f"{PARALLEL}/test_sync_batch_norm.py",
        """SyncBatchNorm(num_features, eps=1e-5, momentum=0.1, affine=True,
 track_running_stats=True)""".replace("\n", ""),
    ),
    Group(
        "Helpers",
        TORCH,
        "sirtaki.torch",
        f"{SINGLE}/torch/test_names.py",
        "_check_has_gpu()",
    ),
    Group(
        "Launching from Python",
        "horovod",
        "sirtaki.launch.api",
        f"{SINGLE}/launch/test_api.py",
        """run(func, args=(), kwargs=None, num_proc=1, min_num_proc=None, max_num_proc=None,
 slots=None, reset_limit=None, cooldown_range=None, hosts=None, hostfile=None,
 host_discovery_script=None, start_timeout=None, ssh_port=None, ssh_identity_file=None,
 disable_cache=None, output_filename=None, verbose=None, use_gloo=None, use_mpi=None,
 mpi_args=None, network_interface=None, network_interfaces=None, executable=None, np=None,
 min_np=None, max_np=None)""".replace("\n", ""),
    ),
    Group(
        "The launcher as functions",
        "horovod.runner.launch",
        "horovod.runner.launch",
        f"{SINGLE}/launch/test_horovod_names.py",
        """parse_args()
        _run(args)
        run_commandline()""",
    ),
    Group(
        "Arguments of the launcher",
        "horovod.runner",
        "horovod.runner",
        f"{SINGLE}/launch/test_horovod_names.py",
        """_HorovodArgs()""",
    ),
    Group(
        "Hosts and slots",
        "horovod.runner.common.util.hosts",
        "horovod.runner.common.util.hosts",
        f"{SINGLE}/launch/test_horovod_names.py",
        """HostInfo(hostname, slots)
        HostInfo.from_string(host_string)
        SlotInfo(hostname, rank, local_rank, cross_rank, size, local_size, cross_size)
        SlotInfo.to_response_string()
        parse_hosts(hosts_string)
        parse_host_files(filename)
        get_host_assignments(hosts, min_num_proc, max_num_proc=None)""",
    ),
    Group(
        "Shell commands",
        "horovod.runner.common.util.safe_shell_exec",
        "horovod.runner.common.util.safe_shell_exec",
        f"{SINGLE}/launch/test_horovod_names.py",
        """execute(command, env=None, stdout=None, stderr=None, index=None, events=None,
 prefix_output_with_timestamp=False)""".replace("\n", ""),
    ),
    Group(
        "Flags and the file of settings as variables",
        "horovod.runner.common.util.config_parser",
        "horovod.runner.common.util.config_parser",
        f"{SINGLE}/launch/test_horovod_names.py",
        """set_args_from_config(args, config, override_args)
        validate_config_args(args)
        set_env_from_args(env, args)""",
    ),
    Group(
        "Keys of jobs",
        "horovod.runner.common.util.secret",
        "horovod.runner.common.util.secret",
        f"{SINGLE}/launch/test_horovod_names.py",
        """HOROVOD_SECRET_KEY="_HOROVOD_SECRET_KEY"
        DIGEST_LENGTH=32
        make_secret_key()
        compute_digest(key, message)
        check_digest(digest, message, key)""",
    ),
    Group(
        "Settings of jobs",
        "horovod.runner.common.util.settings",
        "horovod.runner.common.util.settings",
        f"{SINGLE}/launch/test_horovod_names.py",
        """BaseSettings
        Settings""",
    ),
    Group(
        "Pipes between threads",
        "horovod.runner.util.streams",
        "horovod.runner.util.streams",
        f"{SINGLE}/launch/test_horovod_names.py",
        """Pipe()
        Pipe.write(buf)
        Pipe.read(length=-1, timeout=None)
        Pipe.close()""",
    ),
    Group(
        "Rendezvous of one's own",
        "horovod.runner.http.http_server",
        "horovod.runner.http.http_server",
        f"{SINGLE}/launch/test_horovod_names.py",
        """RendezvousServer(verbose=0)
        RendezvousServer.init(host_alloc_plan)
        RendezvousServer.start
        RendezvousServer.stop""",
    ),
    Group(
        "What is remembered and what is built",
        "horovod.common.util",
        "horovod.common.util",
        f"{SINGLE}/launch/test_horovod_names.py",
        """_cache
        get_ext_suffix()
        check_extension(ext_name, ext_env_var, pkg_path, *args)
        is_version_greater_equal_than(ver, target)""",
    ),
    Group(
        "Version of the interface",
        "horovod",
        "horovod",
        f"{SINGLE}/torch/test_names.py",
        '__version__="0.28.1"',
    ),
    Group(
        "Data loaders",
        "horovod.data",
        "sirtaki.data.data_loader_base",
        f"{SINGLE}/torch/test_data.py",
        """BaseDataLoader
        BaseDataLoader.__len__()
        BaseDataLoader._iterate()
        BaseDataLoader._process_batch(batch)
        AsyncDataLoaderMixin(async_loader_queue_size=64, debug_data_loader=False, *args, **kwargs)
        AsyncDataLoaderMixin.close_async_loader()""",
    ),
]

# Parameters behind Horovod's, all with defaults.
MORE_PARAMETERS = {
    "init": ["placement"],
    "allgather_object": ["process_set"],
    "SyncBatchNorm": ["process_set"],
    "_DistributedOptimizer.zero_grad": ["*args", "**kwargs"],
    "DistributedOptimizer": ["skip_unused", "reproducible"],
    "run": ["host_discovery"],
    "ElasticSampler": ["even"],
}

# Parameters with another default, and which: the reason is in DIFFERENCES.
OTHER_DEFAULTS = {
    "broadcast_object": {"obj": "None"},
    "run": {"num_proc": "None"},
}

DIFFERENCES = {
    "init": "`placement` is ours: a place that no variable has to tell",
    "allgather": "of any dtype",
    "alltoall": "of any dtype",
    "broadcast": "of any dtype",
    "_DistributedOptimizer.step": (
        "`RuntimeError` if gradients were changed since backward without `synchronize`"
    ),
    "_DistributedOptimizer.set_backward_passes_per_step": (
        "`RuntimeError` while gradients are being reduced"
    ),
    "allgather_object": "also takes `process_set`",
    "SyncBatchNorm": "works on CPU tensors too, and takes `process_set`",
    "_DistributedOptimizer.zero_grad": (
        "discards gradients that are being reduced (Horovod: `AssertionError`)"
    ),
    "DistributedOptimizer": "PyTorch's also takes `skip_unused` and `reproducible`",
    "broadcast_object": "`obj` may be left out where it is not sent",
    "run": "`num_proc` is None by default, which means 1, so that `np` can be told apart; "
    "also takes `host_discovery`",
    "synchronize": "`ValueError` for an unknown or used handle (Horovod: returns None)",
    "broadcast_parameters": "also takes generators, as `model.named_parameters()`",
    "broadcast_optimizer_state": "options of optimizers without state are sent too",
    "nccl_built": "0 unless this process's PyTorch has NCCL and sees a GPU",
    "gloo_built": "True: the native transport has Gloo's place",
    "gloo_enabled": "True: the native transport has Gloo's place",
    "mpi_built": "True when mpi4py and an MPI are installed",
    "mpi_enabled": "True when operations run on MPI",
    "add_process_set": "lists that differ are a `MismatchError` on all ranks",
    "RendezvousServer": "needs the secret in the file that `SIRTAKI_SECRET_FILE` names",
    "HorovodVersionMismatchError": "never raised: nothing is compiled against a framework",
    "ElasticSampler": "`even` is ours: what happens to samples that do not divide evenly",
}

# What Horovod has and this version has not.
MISSING = {
    "horovod.runner.elastic.driver": "and its like: only `discovery` and `settings` are there",
}


def name_of(line: str) -> str:
    """The name in a line of a group."""
    return line.split("(")[0].split("=")[0]


def page() -> str:
    """What docs/design/api-coverage.md has to be."""
    from tests.frameworks.api_names import GROUPS as FRAMEWORKS
    from tests.single.repository.cli_flags import rows_of_flags
    from tests.single.repository.elastic_names import GROUPS as ELASTIC

    lines = [
        "# API coverage",
        "",
        "Every public name of Horovod 0.28.1 for PyTorch, TensorFlow and Keras, its launcher and",
        "its data loaders: where it is, and which test tries it. Tests compare names, parameters",
        "and defaults with the code. `sirtaki.torch` and `sirtaki.data` have the same names as",
        "`horovod.torch` and `horovod.data`, and so on.",
        "",
        "Not there yet: " + "; ".join(f"`{k}` ({v})" for k, v in MISSING.items()) + ".",
    ]
    for group in [*GROUPS, *ELASTIC, *FRAMEWORKS]:
        lines += ["", f"## {group.title}", "", f"In `{group.horovod}`.", ""]
        lines += ["| Name | Where | Test | Different |", "|---|---|---|---|"]
        for line in group.lines():
            note = DIFFERENCES.get(name_of(line), "")
            lines.append(f"| `{line}` | `{group.where}` | `{group.test}` | {note} |")
    lines += ["", "## Flags of horovodrun", "", *rows_of_flags()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
