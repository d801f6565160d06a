#!/bin/bash
# Two machines in one: network namespaces cam$RIG (10.77.0.1, the camera) and cli$RIG (10.77.0.2, the client) on one cable.
# $RIG keeps apart who uses this at the same time. Needs root, iproute2 and nftables.
#
#   netfault.sh up | down            make or remove both (down ends what still runs in them)
#   netfault.sh cam|cli COMMAND...   run COMMAND in the camera's or the client's namespace
#   netfault.sh loss P               of the packets that arrive at the client P % are lost, at random; 0 for none
#   netfault.sh lossback P           the same for what the client sends
#   netfault.sh blackhole on|off     everything is lost, both ways, and nobody is told: the cable is in
#   netfault.sh reject on|off        the camera's machine answers each TCP packet with a reset
#   netfault.sh linkdown | linkup    the cable is out, or in again
#   netfault.sh clean                no faults any more
#   netfault.sh show                 the rules with their counts
set -eu
cam=cam${RIG:-} cli=cli${RIG:-}

rule() { ip netns exec "$1" nft add rule inet fault "$2" "${@:3}"; }
flush() { ip netns exec "$1" nft flush chain inet fault "$2"; }

loss() { # CHAIN PERCENT
    [[ $2 =~ ^[0-9]+(\.[0-9])?$ ]] || { echo "netfault: a percentage is 0 to 100, with one decimal at most" >&2; exit 2; }
    local per_mille
    per_mille=$(awk -v p="$2" 'BEGIN { printf "%d", p * 10 }')
    flush "$cli" "$1"
    [ "$per_mille" = 0 ] || rule "$cli" "$1" numgen random mod 1000 lt "$per_mille" counter drop
}

up() {
    ip netns add "$cam"
    ip netns add "$cli"
    ip link add rig0 netns "$cam" type veth peer name rig0 netns "$cli"
    local n=0 ns
    for ns in "$cam" "$cli"; do
        n=$((n + 1))
        ip -n "$ns" addr add 10.77.0.$n/24 dev rig0
        ip -n "$ns" link set rig0 up
        ip -n "$ns" link set lo up
        ip netns exec "$ns" nft -f - <<END
table inet fault {
    chain rx   { type filter hook input priority 0; }
    chain tx   { type filter hook output priority 0; }
    chain hole { type filter hook input priority -10; iifname "lo" accept; }
    chain rst  { type filter hook input priority -5; }
}
END
    done
}

down() {
    local ns
    for ns in "$cam" "$cli"; do
        ip netns pids "$ns" 2>/dev/null | xargs -r kill -9 || true
        ip netns del "$ns" 2>/dev/null || true
    done
}

blackhole() { # on|off
    local ns
    for ns in "$cam" "$cli"; do
        flush "$ns" hole
        rule "$ns" hole iifname lo accept
        [ "$1" = off ] || rule "$ns" hole counter drop
    done
}

reject() { # on|off
    flush "$cam" rst
    [ "$1" = off ] || rule "$cam" rst meta l4proto tcp counter reject with tcp reset
}

clean() {
    local ns chain
    for ns in "$cam" "$cli"; do
        for chain in rx tx rst hole; do flush "$ns" $chain; done
    done
    ip -n "$cam" link set rig0 up
}

case ${1:-} in
up | down | clean) "$1" ;;
blackhole | reject) "$1" "$2" ;;
cam) exec ip netns exec "$cam" "${@:2}" ;;
cli) exec ip netns exec "$cli" "${@:2}" ;;
loss) loss rx "$2" ;;
lossback) loss tx "$2" ;;
linkdown) ip -n "$cam" link set rig0 down ;;
linkup) ip -n "$cam" link set rig0 up ;;
show)
    for ns in "$cam" "$cli"; do
        ip netns exec "$ns" nft list table inet fault
        ip -n "$ns" -br link show rig0
    done
    ;;
*) sed -n '2,16s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
