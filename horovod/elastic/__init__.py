"""Tools for elastic jobs: `python -m horovod.elastic plot events.jsonl`. To train, see `hvd.elastic`."""
