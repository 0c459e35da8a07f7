# shellcheck shell=bash
# Functions for a cluster described by a hosts file. In a script or an interactive bash:  source utils/cluster.sh
#
#   runclust hosts 'df -h ~'                    runs a command line on every host
#   copyclust hosts ~/data/tf-imagenet/ data/   copies files to every host but this one (rsync; "to" is seen from ~)
#
# Hosts come from the first word of each line; localhost is this machine. Each host's output follows its name. All
# hosts are tried; the exit code is 1 if one failed, and they are named. ssh must work without a password.

# Prints the hosts in a file, one per line; words like "name:4" lose their slots.
_clusthosts() {
    local line name
    if [[ ! -r ${1:-} ]]; then
        echo "the hosts file '${1:-}' can't be read: name one, such as examples/imagenet/hosts" >&2
        return 2
    fi
    while IFS= read -r line || [[ -n $line ]]; do
        line=${line%%#*}
        read -r name _ <<<"$line" || true
        [[ -n $name ]] || continue
        # An IPv6 address has more than one colon, and brackets if slots follow.
        case $name in
            \[*) name=${name#\[} && name=${name%%\]*} ;;
            *:*:*) ;;
            *:*) name=${name%%:*} ;;
        esac
        # A dash would be taken for a flag of ssh.
        if [[ ! $name =~ ^[A-Za-z0-9_.:][A-Za-z0-9_.:-]*$ ]]; then
            echo "$1: '$name' is not the name of a host" >&2
            return 2
        fi
        printf '%s\n' "$name"
    done <"$1"
}

_clustfailed() {
    (($# == 0)) && return 0
    echo "failed on: $*" >&2
    return 1
}

runclust() {
    local names host failed=()
    if (($# != 2)); then
        echo "usage: runclust HOSTS_FILE 'COMMAND LINE'" >&2
        return 2
    fi
    names=$(_clusthosts "$1") || return
    for host in $names; do
        echo "== $host"
        if [[ $host == localhost ]]; then
            (cd && bash -c "$2") </dev/null || failed+=("$host")
        else
            ssh -n -o BatchMode=yes -o StrictHostKeyChecking=accept-new -o ConnectTimeout=10 -- "$host" "$2" ||
                failed+=("$host")
        fi
    done
    _clustfailed "${failed[@]}"
}

copyclust() {
    local names host target failed=()
    if (($# != 3)); then
        echo "usage: copyclust HOSTS_FILE FROM TO" >&2
        return 2
    fi
    if ! command -v rsync >/dev/null; then
        echo "copyclust needs rsync here and on every host: apt-get install rsync" >&2
        return 2
    fi
    names=$(_clusthosts "$1") || return
    for host in $names; do
        [[ $host == localhost ]] && continue
        echo "== $host"
        target=$host
        [[ $host == *:* ]] && target="[$host]"
        # -s: file names with blanks or quotes arrive as they are. --mkpath: makes the directories on the way.
        rsync -azs --mkpath --timeout=60 -e "ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new -o ConnectTimeout=10" \
            -- "$2" "$target:$3" || failed+=("$host")
    done
    _clustfailed "${failed[@]}"
}
