"""Every flag of Horovod's `horovodrun`, and what this version does with it."""

from __future__ import annotations

from typing import NamedTuple


class Flag(NamedTuple):
    """A flag with all its spellings.

    value: an example, "" for a flag without one. effect: "NAME=value" that the workers get for it,
    "launcher" when it acts there, "lsf" when it does so in some LSF jobs only, or "accepted" when
    it has nothing to do. key: in the file of --config-file.
    """

    spellings: str
    value: str
    effect: str
    key: str = ""


ENV = "HOROVOD_"
TUNE = "HOROVOD_AUTOTUNE_"

FLAGS = [
    Flag("-v --version", "", "launcher"),
    Flag("-np --num-proc", "2", "launcher"),
    Flag("-cb --check-build", "", "launcher"),
    Flag("--disable-cache", "", "accepted"),
    Flag("--start-timeout", "45", f"{ENV}START_TIMEOUT=45"),
    Flag("--network-interfaces --network-interface", "lo", f"{ENV}GLOO_IFACE=lo"),
    Flag("--output-filename", "logs", "launcher"),
    Flag("--verbose", "", "launcher"),
    Flag("--config-file", "settings.yaml", "launcher"),
    Flag("-p --ssh-port", "2222", "launcher"),
    Flag("-i --ssh-identity-file", "key", "launcher"),
    Flag(
        "--fusion-threshold-mb", "2", f"{ENV}FUSION_THRESHOLD=2097152", "params.fusion_threshold_mb"
    ),
    Flag("--cycle-time-ms", "2.5", f"{ENV}CYCLE_TIME=2.5", "params.cycle_time_ms"),
    Flag("--cache-capacity", "9", f"{ENV}CACHE_CAPACITY=9", "params.cache_capacity"),
    Flag("--hierarchical-allreduce", "", f"{ENV}HIERARCHICAL_ALLREDUCE=1"),
    Flag("--no-hierarchical-allreduce", "", f"{ENV}HIERARCHICAL_ALLREDUCE=0"),
    Flag("--hierarchical-allgather", "", f"{ENV}HIERARCHICAL_ALLGATHER=1"),
    Flag("--no-hierarchical-allgather", "", f"{ENV}HIERARCHICAL_ALLGATHER=0"),
    Flag("--torus-allreduce", "", f"{ENV}TORUS_ALLREDUCE=1"),
    Flag("--no-torus-allreduce", "", f"{ENV}TORUS_ALLREDUCE=0"),
    Flag("--autotune", "", f"{ENV}AUTOTUNE=1"),
    Flag("--no-autotune", "", f"{ENV}AUTOTUNE=0"),
    Flag("--autotune-log-file", "a.csv", f"{TUNE}LOG=a.csv", "autotune.log_file"),
    Flag("--autotune-warmup-samples", "1", f"{TUNE}WARMUP_SAMPLES=1", "autotune.warmup_samples"),
    Flag(
        "--autotune-steps-per-sample", "5", f"{TUNE}STEPS_PER_SAMPLE=5", "autotune.steps_per_sample"
    ),
    Flag(
        "--autotune-bayes-opt-max-samples",
        "7",
        f"{TUNE}BAYES_OPT_MAX_SAMPLES=7",
        "autotune.bayes_opt_max_samples",
    ),
    Flag(
        "--autotune-gaussian-process-noise",
        "0.5",
        f"{TUNE}GAUSSIAN_PROCESS_NOISE=0.5",
        "autotune.gaussian_process_noise",
    ),
    Flag("--min-np --min-num-proc", "1", "launcher"),
    Flag("--max-np --max-num-proc", "3", "launcher"),
    Flag("--slots-per-host", "2", "launcher"),
    Flag("--elastic-timeout", "60", "launcher"),
    Flag("--reset-limit", "3", "launcher"),
    Flag("--blacklist-cooldown-range", "1 10", "launcher"),
    Flag("--host-discovery-script", "hosts.sh", "launcher"),
    Flag("--timeline-filename", "t.json", f"{ENV}TIMELINE=t.json", "timeline.filename"),
    Flag("--timeline-mark-cycles", "", f"{ENV}TIMELINE_MARK_CYCLES=1"),
    Flag("--no-timeline-mark-cycles", "", f"{ENV}TIMELINE_MARK_CYCLES=0"),
    Flag("--no-stall-check", "", f"{ENV}STALL_CHECK_DISABLE=1"),
    Flag("--stall-check", "", f"{ENV}STALL_CHECK_DISABLE=0"),
    Flag(
        "--stall-check-warning-time-seconds",
        "20",
        f"{ENV}STALL_CHECK_TIME_SECONDS=20",
        "stall_check.warning_time_seconds",
    ),
    Flag(
        "--stall-check-shutdown-time-seconds",
        "90",
        f"{ENV}STALL_SHUTDOWN_TIME_SECONDS=90",
        "stall_check.shutdown_time_seconds",
    ),
    Flag("--mpi-threads-disable", "", f"{ENV}MPI_THREADS_DISABLE=1"),
    Flag("--no-mpi-threads-disable", "", f"{ENV}MPI_THREADS_DISABLE=0"),
    Flag("--mpi-args", "-x=1", "launcher"),
    Flag("--tcp", "", "NCCL_IB_DISABLE=1"),
    Flag("--binding-args", "-map=1", "launcher"),
    Flag("--num-nccl-streams", "2", f"{ENV}NUM_NCCL_STREAMS=2", "library_options.num_nccl_streams"),
    Flag("--thread-affinity", "1", f"{ENV}THREAD_AFFINITY=1", "library_options.thread_affinity"),
    Flag(
        "--gloo-timeout-seconds",
        "40",
        f"{ENV}GLOO_TIMEOUT_SECONDS=40",
        "library_options.gloo_timeout_seconds",
    ),
    Flag("--log-level", "DEBUG", f"{ENV}LOG_LEVEL=DEBUG", "logging.level"),
    Flag("--log-with-timestamp --no-log-hide-timestamp", "", f"{ENV}LOG_HIDE_TIME=0"),
    Flag("--log-without-timestamp --log-hide-timestamp", "", f"{ENV}LOG_HIDE_TIME=1"),
    Flag("-prefix-timestamp --prefix-output-with-timestamp", "", "launcher"),
    Flag("-H --hosts", "localhost:2", "launcher"),
    Flag("-hostfile --hostfile", "hosts", "launcher"),
    Flag("--gloo", "", f"{ENV}CONTROLLER=gloo"),
    Flag("--mpi", "", f"{ENV}CONTROLLER=mpi"),
    Flag("--jsrun", "", "lsf"),
]

# Keys of switches in the file of --config-file: what true means.
SWITCH_KEYS = {
    "params.hierarchical_allreduce": f"{ENV}HIERARCHICAL_ALLREDUCE=1",
    "params.hierarchical_allgather": f"{ENV}HIERARCHICAL_ALLGATHER=1",
    "params.torus_allreduce": f"{ENV}TORUS_ALLREDUCE=1",
    "autotune.enabled": f"{ENV}AUTOTUNE=1",
    "timeline.mark_cycles": f"{ENV}TIMELINE_MARK_CYCLES=1",
    "stall_check.enabled": f"{ENV}STALL_CHECK_DISABLE=0",
    "library_options.mpi_threads_disable": f"{ENV}MPI_THREADS_DISABLE=1",
    "logging.with_timestamp": f"{ENV}LOG_HIDE_TIME=0",
}

TEST = "tests/single/repository/test_api_coverage.py"
_MEANINGS = {
    "launcher": "acts in the launcher",
    "lsf": "in LSF jobs with `jsrun` on the PATH: the default; elsewhere refused",
    "accepted": "accepted, with nothing to do",
}


def rows_of_flags() -> list[str]:
    """The table of the flags, in Markdown."""
    lines = [
        f"All are tried in `{TEST}`.",
        "",
        "| Flag | Effect | Key in the file |",
        "|---|---|---|",
    ]
    for flag in FLAGS:
        spellings = ", ".join(f"`{spelling}`" for spelling in flag.spellings.split())
        effect = _MEANINGS.get(flag.effect) or f"sets `{flag.effect.split('=')[0]}`"
        key = f"`{flag.key}`" if flag.key else ""
        lines.append(f"| {spellings} | {effect} | {key} |")
    lines += ["", "Keys of the file for flags that switch something on or off:"]
    lines.append(", ".join(f"`{key}`" for key in SWITCH_KEYS) + "; and `controller`.")
    return lines
