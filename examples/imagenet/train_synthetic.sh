#!/usr/bin/env bash
# ./train_synthetic.sh [N] [flags]: how fast N processes (default 8) train ResNet-50 on random images. Reads no data.
# HOSTS names another hosts file. Flags are those of train_imagenet_resnet_hvd.py, for example --batch_size 8.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/start.sh"
ours=(--synthetic --lr 6.4 --warmup_epochs 0 --display_every 100)
start "$@"
