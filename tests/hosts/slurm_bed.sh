#!/bin/bash
# slurm_bed.sh FOLDER HOSTS: real Slurm daemons on virtual hosts node1, node2, ... of this machine.
#
# Runs as the first process of fresh network, name, mount and process namespaces, and says "up" on
# standard output when every host is ready. Everything is gone when this process is.
set -eu
folder=$1 count=$2
. "${BASH_SOURCE%/*}/virtual_hosts.sh"

# ---- Configuration ----
# slurmd insists on a cgroup plug-in, even if it does not use it.
echo "CgroupPlugin=cgroup/v1" >"$folder/cgroup.conf"
cat >"$folder/slurm.conf" <<CONF
ClusterName=bed
SlurmctldHost=control(10.77.0.1)
SlurmctldPort=17000
SlurmdPort=17001
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/run/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,batch_sched_delay=0,sched_interval=1,sched_min_interval=0
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
ReturnToService=2
JobRequeue=0
RequeueExit=75
SlurmctldTimeout=10
SlurmdTimeout=20
KillWait=10
InactiveLimit=0
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool.%n
TmpFS=$folder/tmp.%n
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/slurmd.%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.%n.log
$(for i in $(seq "$count"); do echo "NodeName=node$i NodeAddr=10.77.0.1$i CPUs=4 State=UNKNOWN"; done)
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$folder/slurm.conf

# ---- Daemons ----
head -c 128 /dev/urandom >"$folder/run/munge.key"
chmod 400 "$folder/run/munge.key"
munged --force --key-file="$folder/run/munge.key" --socket="$folder/run/munge.socket" \
  --pid-file="$folder/run/munged.pid" --log-file="$folder/log/munged.log" \
  --seed-file="$folder/run/munge.seed" 2>"$folder/log/munged.err"
slurmctld -i
for i in $(seq "$count"); do on_host "$i" "slurmd -N node$i"; done
all_idle() { [ "$(sinfo -h -N -o %T 2>/dev/null | grep -c idle)" = "$count" ]; }
say_up all_idle
