"""What docs/compatibility.md says of programs with sessions; of other forms, see keras/launches.py."""

from check_launch import Launch

LAUNCHES = [
    Launch("older-graph", 2, ["checks_older_graph.py"], {"TF_USE_LEGACY_KERAS": "1"}, 240, needs=["tf_keras"])
]
