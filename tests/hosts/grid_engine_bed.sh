#!/bin/bash
# grid_engine_bed.sh FOLDER HOSTS: as slurm_bed.sh, with a real Grid Engine of four slots a host.
#
# Its parallel environment `two` gives a job two slots on each host.
set -eu
folder=$1 count=$2
. "${BASH_SOURCE%/*}/virtual_hosts.sh"

# ---- Configuration ----
export SGE_ROOT=$folder SGE_QMASTER_PORT=17002 SGE_EXECD_PORT=17003
programs=/usr/lib/gridengine common=$folder/default/common spool=$folder/state
PATH=$programs:$PATH
mkdir -p "$common" "$folder/utilbin"
ln -s /usr/share/gridengine/util "$folder/util"
ln -s $programs "$folder/utilbin/lx-amd64"
echo control >"$common/act_qmaster"
cat >"$common/bootstrap" <<CONF
admin_user none
default_domain none
ignore_fqdn true
spooling_method classic
spooling_lib libspoolc
spooling_params $common;$spool
binary_path $programs
qmaster_spool_dir $spool
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
CONF
sed "s#^execd_spool_dir .*#execd_spool_dir $folder/run#; s#^min_\(.\)id .*#min_\1id 0#
  s#^load_report_time .*#load_report_time 00:00:01#" \
  /usr/share/gridengine/default-configuration >"$folder/configuration"
{
  spoolinit classic libspoolc "$common;$spool" init
  spooldefaults configuration "$folder/configuration"
  for kind in complexes:centry usersets:usersets; do
    spooldefaults "${kind%:*}" "/usr/share/gridengine/util/resources/${kind#*:}"
  done
  spooldefaults managers root
  spooldefaults operators root
  sge_qmaster

  for _ in $(seq 200); do qconf -sh && break || sleep 0.05; done
  qconf -as control
  nodes=$(seq -s ' ' -f 'node%.0f' "$count")
  for node in $nodes; do qconf -as "$node" -ah "$node"; done
  cat >"$folder/pe" <<CONF
pe_name two
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule 2
control_slaves TRUE
job_is_first_task FALSE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
CONF
  qconf -Ap "$folder/pe"
  # Hosts share files, and each makes a folder of the job's name.
  folders=$(for node in $nodes; do printf ',[%s=%s]' "$node" "$folder/tmp.$node"; done)
  qconf -sq | sed "s/^qname .*/qname main/; s/^hostlist .*/hostlist $nodes/; s/^slots .*/slots 4/
    s/^pe_list .*/pe_list two/; s/^load_thresholds .*/load_thresholds NONE/
    s#^tmpdir .*#tmpdir /tmp$folders#" >"$folder/queue"
  qconf -Aq "$folder/queue"
  qconf -ssconf | sed 's/^schedule_interval .*/schedule_interval 0:0:1/
    s/^flush_\(.*\)_sec .*/flush_\1_sec 1/' >"$folder/scheduler"
  qconf -Msconf "$folder/scheduler"

  # ---- Daemons ----
  for i in $(seq "$count"); do on_host "$i" "$programs/sge_execd"; done
} >"$folder/log/start" 2>&1 </dev/null || { cat "$folder/log/start" >&2; exit 1; }
# A queue that cannot be used has a state.
all_usable() { [ "$(qstat -f | grep -c '^main@.*lx-amd64 *$')" = "$count" ]; }
say_up all_usable
