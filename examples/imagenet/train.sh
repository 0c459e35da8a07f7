#!/usr/bin/env bash
# ./train.sh [N] [flags]: trains ResNet-50 on the data in ~/data/tf-imagenet with N processes (default 8), then
# evaluates it. Started again it goes on from its newest checkpoint in ~/imagenet_resnet.
# HOSTS names another hosts file. Flags are those of train_imagenet_resnet_hvd.py, for example --data_dir DIR.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/start.sh"
ours=(--data_dir "$HOME/data/tf-imagenet" --log_dir "$HOME/imagenet_resnet")
start "$@"
