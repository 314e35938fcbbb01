# Sourced with FOLDER and COUNT set, in fresh network, name, mount and process namespaces: makes hosts
# node1, node2, ... of this machine, and a host for a scheduler's controller, which this shell is on.
#
# A host has its own network (10.77.0.11, .12, ...), and `on_host` gives it a name and /dev/shm; other
# files are common to all, as on a shared file system.
mkdir -p "$folder"/{state,log,run}
chmod 755 "$folder"
hostname control
{
  echo "127.0.0.1 localhost"
  echo "10.77.0.1 control"
  for i in $(seq "$count"); do echo "10.77.0.1$i node$i"; done
} >"$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts
mount -t tmpfs none /run
mkdir /run/netns
ip link set lo up
ip link add bridge type bridge
ip address add 10.77.0.1/24 dev bridge
ip link set bridge up
for i in $(seq "$count"); do
  mkdir "$folder/spool.node$i" "$folder/tmp.node$i"
  ip netns add "node$i"
  ip link add "veth$i" type veth peer name eth0 netns "node$i"
  ip link set "veth$i" master bridge up
  ip -n "node$i" link set lo up
  ip -n "node$i" address add "10.77.0.1$i/24" dev eth0
  ip -n "node$i" link set eth0 up
done

# on_host NUMBER COMMAND: starts a daemon there.
on_host() {
  ip netns exec "node$1" unshare --uts sh -c "hostname node$1; mount -t tmpfs none /dev/shm; exec $2"
}

# say_up COMMAND: waits until it succeeds, says "up", and buries whom others leave behind.
say_up() {
  for _ in $(seq 400); do
    if "$@"; then
      echo up
      while true; do read -r _ || break; done
      exit 0
    fi
    sleep 0.05
  done
  tail -n 20 "$folder"/log/* >&2
  exit 1
}
