# The wires on `login`: a switch in a namespace of its own, a cable to each host, and the rates of the links.
# Sourced by build and relink, which run on `login` and set `state`.

in_switch() { nsenter --target "$(cat "$state/pids/switch")" --net -- "$@"; }
in_host() { # HOST COMMAND...; its network only
    local pid
    pid=$(cat "$state/pids/host$1")
    nsenter --target "$pid" --net -- "${@:2}"
}

# The same in every cluster, as no cluster sees another, or this machine's network.
address_of() { echo "10.77.$(($1 / 200)).$(($1 % 200 + 1))"; }
login_address=10.77.250.1

# What may pass at once: what a timer that comes 250 us late must make up for, and not below two packets. It is kept small, as
# every byte of it passes at no cost and makes small messages look faster than the link.
burst_of() { # BITS_PER_SECOND
    local bytes=$(($1 / 8 / 4000))
    if [ "$bytes" -lt 3200 ]; then bytes=3200; fi
    echo "$bytes"
}

# One class for all that leaves a host, under it one for ordinary destinations (1) and, where a link differs, one each.
htb() { # VERB HOST PARENT CLASS GUARANTEED CEILING
    local burst
    burst=$(burst_of "$6")
    in_host "$2" tc class "$1" dev eth0 parent "$3" classid "$4" \
        htb rate "$5" ceil "$6" burst "$burst" cburst "$burst" quantum 3028
}

shape_host() { # VERB HOST BITS_PER_SECOND
    htb "$1" "$2" 1: 1:fffe "$3" "$3"
    htb "$1" "$2" 1:fffe 1:1 100kbit "$3"
    # What comes in is shaped as well, at the switch, or many senders could fill one host faster than its cable can.
    in_switch tc qdisc replace dev "port$2" root tbf rate "$3" burst "$(burst_of "$3")" limit 16mb
}

begin_shaping() { # HOST BITS_PER_SECOND
    # Packets leave in bundles of 16 instead of 45, as a bundle passes whole; single ones would cost more than processors have.
    in_host "$1" ip link set eth0 gso_max_segs 16
    in_host "$1" tc qdisc add dev eth0 root handle 1: htb default 1
    shape_host add "$1" "$2"
}

# One direction of a link between two hosts.
shape_direction() { # FROM TO BITS_PER_SECOND|down
    local class
    class=$(printf '%x' "$(($2 + 16))")
    if [ -z "$(in_host "$1" tc class show dev eth0 classid "1:$class")" ]; then
        htb add "$1" 1:fffe "1:$class" 100kbit 1000000000
        in_host "$1" tc filter add dev eth0 parent 1: protocol ip prio 1 u32 \
            match ip dst "$(address_of "$2")/32" flowid "1:$class"
    fi
    # A blackhole takes packets and says nothing, as a cut cable does.
    if [ "$3" = down ]; then
        in_host "$1" tc qdisc replace dev eth0 parent "1:$class" blackhole
    else
        in_host "$1" tc qdisc replace dev eth0 parent "1:$class" pfifo limit 1000
        htb change "$1" 1:fffe "1:$class" 100kbit "$3"
    fi
}

# The switch drops what comes faster than four fifths of the link's rate, as a port without buffers does, and hosts retransmit. For good.
lose_direction() { # FROM TO BITS_PER_SECOND
    local port="port$2" all least=$(($3 / 5 * 4))
    all=$(cat "$state/rates/$2")
    in_switch tc qdisc replace dev "$port" root handle 1: htb default 1
    in_switch tc class replace dev "$port" parent 1: classid 1:1 htb rate "$all" burst "$(burst_of "$all")"
    in_switch tc class replace dev "$port" parent 1: classid 1:2 htb rate "$least" burst "$(burst_of "$least")"
    in_switch tc qdisc replace dev "$port" parent 1:2 pfifo limit 8
    in_switch tc filter replace dev "$port" parent 1: protocol ip prio 1 u32 match ip src "$(address_of "$1")/32" flowid 1:2
}

# A link between two hosts, written 1-3, in both directions.
shape_link() { # PAIR BITS_PER_SECOND|down
    shape_direction "${1%-*}" "${1#*-}" "$2"
    shape_direction "${1#*-}" "${1%-*}" "$2"
}
