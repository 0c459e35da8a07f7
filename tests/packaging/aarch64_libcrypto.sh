#!/usr/bin/env bash
# OpenSSL's library for ARM from Debian, unpacked into a directory: aarch64_libcrypto.sh DIRECTORY.
# Debian has no package of it for other machines, as it has of the C library. Nothing is installed, and the system stays without ARM.
set -euo pipefail
mkdir -p "$1/state/lists/partial" "$1/cache/archives/partial"
cd "$1"
: > status
options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root
  -o Dir::State="$PWD/state" -o Dir::State::status="$PWD/status" -o Dir::Cache="$PWD/cache")
apt-get "${options[@]}" update
apt-get "${options[@]}" download libssl3
dpkg-deb -x libssl3_*.deb .
rm -rf state cache status libssl3_*.deb
