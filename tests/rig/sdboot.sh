#!/usr/bin/env bash
# Boots a real systemd (PID 1) in a throw-away container over an overlay of /, runs a command in it, and powers off.
#
#   sdboot.sh [-u UNIT_FILE]... [-f SOURCE:DESTINATION]... [-t SECONDS] COMMAND
#
#   -u   copied to /etc/systemd/system; its journal is shown at the end
#   -f   copied (a folder with all in it)
#   -t   limit for all (60)
#
# COMMAND is bash, run as root after multi-user.target. Its output goes to standard output, then a line `---- journal`,
# then the journal of the units. Exit status: COMMAND's; 124 if the limit ran out; 77 where this machine cannot do it, with
# the reason on standard error. The network inside is a loopback of its own, /tmp is empty, no service of this machine
# starts; the rest of / is visible, and what is written is thrown away. Takes about a second.
set -eu

cannot() {
    echo "sdboot: $*" >&2
    exit 77
}

units=() files=() limit=60
while getopts u:f:t: option; do
    case $option in
        u) units+=("$OPTARG") ;;
        f) files+=("$OPTARG") ;;
        t) limit=$OPTARG ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# = 1 ] || {
    sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0" >&2
    exit 2
}
[ "$(id -u)" = 0 ] || cannot "booting a systemd needs root"
command -v systemd-nspawn >/dev/null || cannot "systemd-nspawn is not installed (package systemd-container)"

top=$(mktemp -d "${TMPDIR:-/tmp}/sdboot.XXXXXX")
root=$top/root groups=()
mkdir "$top/upper" "$top/work" "$root"

# shellcheck disable=SC2317 # the trap calls it
cleanup() {
    local group tries
    for group in "${groups[@]}"; do
        # Leave the group; end what outlived the limit in it; remove it and what systemd made below it.
        echo $$ >"${group%/*}/cgroup.procs" || true
        [ ! -e "$group/cgroup.kill" ] || echo 1 >"$group/cgroup.kill"
        tries=30
        until find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || [ $((tries -= 1)) = 0 ]; do sleep 0.1; done
    done
    umount "$root" 2>/dev/null || umount -l "$root" 2>/dev/null || true
    rm -rf --one-file-system "$top"
}
trap cleanup EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

mount -t overlay sdboot -o "lowerdir=/,upperdir=$top/upper,workdir=$top/work" "$root" 2>"$top/mount.log" ||
    cannot "an overlay of / cannot be mounted here: $(cat "$top/mount.log")"
# A control group of our own, so that the container's PID 1 does not work at the machine's root.
for hierarchy in /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do
    [ -w $hierarchy/cgroup.procs ] || continue
    group=$hierarchy/${top##*/}
    mkdir "$group"
    groups+=("$group")
    echo $$ >"$group/cgroup.procs"
done

etc=$root/etc/systemd/system
# Nothing that this machine has enabled starts, nor what every machine starts and no test needs.
rm -rf "$etc"/*.wants
mkdir -p "$etc/multi-user.target.wants" "$root/sdboot"
for unit in console-getty getty@ systemd-timesyncd systemd-networkd systemd-resolved systemd-logind; do
    ln -sf /dev/null "$etc/$unit.service"
done
journals=()
for unit in "${units[@]}"; do
    install -m 644 "$unit" "$etc/"
    journals+=(-u "${unit##*/}")
done
for file in "${files[@]}"; do
    mkdir -p "$root$(dirname "${file#*:}")"
    cp -a "${file%%:*}" "$root${file#*:}"
done

printf '%s\n' "$1" >"$root/sdboot/command"
cat >"$root/sdboot/run" <<END_OF_RUN
bash /sdboot/command 2>&1
status=\$?
if [ ${#journals[@]} -gt 0 ]; then
    journalctl --sync
    echo "---- journal"
    journalctl -b --no-pager -o short-precise ${journals[*]}
fi
echo \$status >/sdboot/status
systemctl exit \$status
END_OF_RUN
cat >"$etc/sdboot.service" <<'END_OF_UNIT'
[Unit]
After=multi-user.target
[Service]
ExecStart=/bin/bash /sdboot/run
Environment=HOME=/root
StandardOutput=file:/sdboot/out
StandardError=inherit
END_OF_UNIT
ln -s /etc/systemd/system/sdboot.service "$etc/multi-user.target.wants/"
: >"$root/sdboot/out"

# cgroup2 and bpf() inside, so that IPAddressDeny= and DeviceAllow= bite as they do on a real machine; CAP_IPC_LOCK, so
# that a unit can be given it where this machine's own limit on locked memory cannot be raised.
export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
timeout --foreground -s KILL "$limit" systemd-nspawn --directory="$root" --machine="${top##*/}" --boot --register=no \
    --keep-unit --quiet --console=pipe --private-network --link-journal=no \
    --capability=CAP_BPF,CAP_PERFMON,CAP_NET_ADMIN,CAP_IPC_LOCK --system-call-filter=bpf \
    systemd.show_status=0 </dev/null >"$top/console" 2>&1 || true
cat "$root/sdboot/out"
if [ -s "$root/sdboot/status" ]; then exit "$(cat "$root/sdboot/status")"; fi
echo "sdboot: no end within $limit s; the console said:" >&2
tail -n 20 "$top/console" >&2
exit 124
