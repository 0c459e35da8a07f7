#!/bin/sh
# What `horovodrun --host-discovery-script` calls every second: prints the hosts of now, which stand below.
# Edit this file while the job runs, or let it edit itself as examples/elastic/demo.py does.
exec sed '1,/^# Hosts:$/d' "$0"
# Hosts:
localhost:2
