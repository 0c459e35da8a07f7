"""docs/knobs.md, made from the table."""

from __future__ import annotations

from horovod.common.config.knob import Knob
from horovod.common.config.knobs import KNOBS


def page() -> str:
    """The reference page, in Markdown."""
    lines = [
        "# Settings",
        "",
        "<!-- Generated: python -m horovod.common.config > docs/knobs.md -->",
        "",
        "Each setting is an environment variable of the worker processes, read in `hvd.init()`.",
        "`horovodrun` sets the variable from a flag or from a key of its config file (`section: key`).",
        "A flag beats the config file, the config file beats an inherited variable.",
        "A value that is not allowed is an error. Of a variable, some that the original took are accepted,",
        "and rank 0 says so: other integers for 1/0, of which those above 0 mean yes; numbers with a point",
        "for integers, which end there; anything in `HOROVOD_LOG_LEVEL`, which means `warning` then, and in",
        "settings without effect.",
        "Settings marked *no effect* are accepted for compatibility and do nothing in this engine.",
    ]
    for group in dict.fromkeys(knob.group for knob in KNOBS):
        lines += ["", f"## {group}", "", "| Variable | Default | Allowed | Flags | Config file | Meaning |"]
        lines.append("| --- | --- | --- | --- | --- | --- |")
        lines += [_row(knob) for knob in KNOBS if knob.group == group]
    lines += [
        "",
        "`_HOROVOD_SECRET_KEY` carries the key of the job from the launcher to its workers. It is not a",
        "setting: do not set, print or pass it on.",
    ]
    return "\n".join(lines) + "\n"


def _row(knob: Knob) -> str:
    default = "unset" if knob.default is None else f"`{knob.text(knob.default)}`"
    if knob.unit and knob.default is not None:
        default += f" {knob.unit}"
    shown = [flag for flag in (*knob.flags, *knob.off_flags) if flag not in knob.deprecated_flags]
    key = f"`{knob.section}: {knob.key}`" if knob.key else ""
    doc = knob.doc + (" *No effect.*" if knob.no_effect else "")
    flags = ", ".join(f"`{flag}`" for flag in shown)
    return f"| `{knob.env}` | {default} | {knob.allowed()} | {flags} | {key} | {doc} |"
