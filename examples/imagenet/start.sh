# For train.sh and train_synthetic.sh: start "$@" runs the training program with N processes (default 8), N being
# the first argument if that is a number. HOSTS names another hosts file.
start() {
    local here processes=8
    here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
    if [[ ${1:-} =~ ^[0-9]+$ ]]; then
        processes=$1
        shift
    fi
    exec horovodrun -np "$processes" --hostfile "${HOSTS:-$here/hosts}" "$here/train_imagenet_resnet_hvd.py" \
        "${ours[@]}" "$@"
}
