"""The config file of ``horovodrun``: YAML whose sections and keys come from the table of knobs."""

from __future__ import annotations

from collections.abc import Iterable

from horovod.common.config import KNOBS, Value
from horovod.runner.cli.settings import in_units

# Keys of the section "elastic" that only the launcher needs -> the flag's destination
ELASTIC_KEYS = {
    "min_np": "min_np",
    "max_np": "max_np",
    "slots_per_host": "slots_per_host",
    "reset_limit": "reset_limit",
    "blacklist_cooldown_range": "blacklist_cooldown_range",
    "host_discovery_script": "host_discovery_script",
}


def read_config_file(text: str, source: str) -> tuple[dict[str, Value], str | None]:
    """The knobs in a YAML config file, by field name, and its controller.

    ValueError names what is wrong.
    """
    import yaml

    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{source} is not valid YAML: {error}") from None
    if data is None:
        return {}, None
    if not isinstance(data, dict):
        raise ValueError(f"{source} must consist of sections such as 'params:'")
    controller = data.pop("controller", None)
    controller = controller.lower() if isinstance(controller, str) else controller
    if controller not in (None, "gloo", "mpi"):
        raise ValueError(f"{source}: controller: {controller!r} is not valid: it must be gloo or mpi")
    _take_elastic(data)
    known = {(knob.section, knob.key): knob for knob in KNOBS if knob.key}
    sections = list(dict.fromkeys(section for section, _ in known))
    values: dict[str, Value] = {}
    for section, entries in data.items():
        if section not in sections:
            raise ValueError(
                f"{source}: unknown section {section!r}: the sections are controller, {_list(sections)}"
            )
        if entries is not None and not isinstance(entries, dict):
            raise ValueError(f"{source}: section {section!r} must contain 'key: value' lines")
        for key, value in (entries or {}).items():
            knob = known.get((section, key))
            if knob is None:
                keys = _list(key for other, key in known if other == section)
                raise ValueError(f"{source}: unknown key {key!r} in section {section!r}: the keys are {keys}")
            if value is not None:
                parsed = in_units(knob, _yaml_text(value), f"{source}: {section}: {key}")
                values[knob.name] = not parsed if knob.inverted else parsed
    return values, controller


def read_elastic_section(text: str, source: str) -> dict[str, str]:
    """What the section ``elastic`` says besides knobs: the text of each flag, by its destination.

    The file is known to be well-formed.
    """
    import yaml

    data = yaml.safe_load(text)
    values = _take_elastic(data) if isinstance(data, dict) else {}
    return {ELASTIC_KEYS[key]: _yaml_text(value) for key, value in values.items() if value is not None}


def _take_elastic(data: dict[str, object]) -> dict[str, object]:
    """Takes the keys out that are not knobs."""
    section = data.get("elastic")
    if not isinstance(section, dict):
        return {}
    return {key: section.pop(key) for key in list(section) if key in ELASTIC_KEYS}


def _yaml_text(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
