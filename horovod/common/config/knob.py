"""What a setting is: where it can be given, what is allowed, what it does."""

from __future__ import annotations

import contextlib
import re
from dataclasses import Field, field
from typing import Any, NamedTuple, cast

Value = bool | int | float | str | tuple[int, ...] | None

_BOOLEANS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


class Knob(NamedTuple):
    """One setting: where it can be given, what is allowed, what it does.

    ``kind`` is bool, int, float, str or tuple (a comma list of integers, >= 0 unless ``minimum``
    says otherwise). ``flags`` set a boolean and ``off_flags`` clear it. ``hidden_flags`` are left
    out of ``--help``, ``deprecated_flags`` also warn. ``scale`` is the factor from the flag's and
    config file's unit to the variable's. ``requires`` names the field without which ``horovodrun``
    does not export this one. ``inverted``: the config-file key says the opposite of the variable.
    ``tolerant``: a value of the variable that is not allowed means the default; so it does with
    ``no_effect``.
    """

    name: str
    kind: type
    default: Value
    env: str
    group: str
    doc: str
    unit: str = ""
    flags: tuple[str, ...] = ()
    off_flags: tuple[str, ...] = ()
    hidden_flags: tuple[str, ...] = ()
    deprecated_flags: tuple[str, ...] = ()
    section: str = ""
    key: str = ""
    inverted: bool = False
    scale: int = 1
    minimum: float | None = None
    maximum: float | None = None
    exclusive: bool = False
    choices: tuple[str, ...] = ()
    requires: str = ""
    no_effect: bool = False
    tolerant: bool = False

    def allowed(self) -> str:
        """The allowed values in words, for error messages and the reference page."""
        if self.kind is bool:
            return "1/0, true/false, yes/no or on/off"
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind is tuple:
            return f"a comma list of integers >= {self.minimum or 0:g}"
        if self.kind is str:
            return "text"
        noun = "an integer" if self.kind is int else "a number"
        if self.maximum is not None:
            return f"{noun} from {self.minimum:g} to {self.maximum:g}"
        if self.minimum is not None:
            return f"{noun} {'>' if self.exclusive else '>='} {self.minimum:g}"
        return noun

    def parse(self, text: str, source: str = "") -> Value:
        """The value that ``text`` stands for; ``source``
        (default: the variable) is named in the error."""
        text = text.strip()
        try:
            return self._convert(text)
        except ValueError:
            raise ValueError(
                f"{source or self.env}={text!r} is not valid: it must be {self.allowed()}"
            ) from None

    def of_variable(self, text: str) -> tuple[Value, str]:
        """parse(), but with the values that the original Horovod took and that are not allowed here.

        Also what to say about the value, "" if there is nothing to say.
        """
        text = text.strip()
        try:
            return self.parse(text), ""
        except ValueError as error:
            value = self._as_ever(text)
            if value is None and not (self.tolerant or self.no_effect):
                raise
            value = self.default if value is None else value
            return value, f"{error}; {self.text(value) or 'nothing'} is used"

    def _as_ever(self, text: str) -> Value:
        """Numbers as C reads them: all above 0 are a yes, and integers end at the point."""
        if self.kind is bool and re.fullmatch(r"[+-]?[0-9]+", text):
            return int(text) > 0
        if self.kind is int and (number := re.fullmatch(r"([+-]?[0-9]+)\.[0-9]*", text)):
            with contextlib.suppress(ValueError):
                return self._convert(number[1])
        return None

    def _convert(self, text: str) -> Value:
        if self.kind is bool:
            if text.lower() not in _BOOLEANS:
                raise ValueError
            return _BOOLEANS[text.lower()]
        if self.kind is tuple:
            smallest = int(self.minimum or 0)
            return tuple(_integer(part.strip(), minimum=smallest) for part in text.split(","))
        if self.kind is str:
            if self.choices:
                text = text.lower()
                if text not in self.choices:
                    raise ValueError
            return text
        number: int | float = _integer(text) if self.kind is int else float(text)
        # The comparisons are false for NaN, which therefore fails here too.
        if not -1e300 < number < 1e300:
            raise ValueError
        if self.minimum is not None and (
            number < self.minimum or (self.exclusive and number == self.minimum)
        ):
            raise ValueError
        if self.maximum is not None and number > self.maximum:
            raise ValueError
        return number

    def text(self, value: Value) -> str:
        """The text that :meth:`parse` turns into ``value``:
        what goes into a worker's environment."""
        if isinstance(value, bool):
            return "1" if value else "0"
        if isinstance(value, tuple):
            return ",".join(map(str, value))
        return "" if value is None else str(value)


def _integer(text: str, minimum: int | None = None) -> int:
    # int() alone would accept "1_000" and digits of other scripts.
    if not text.lstrip("+-").isdigit() or not text.isascii():
        raise ValueError
    number = int(text)
    if minimum is not None and number < minimum:
        raise ValueError
    return number


PERFORMANCE = "Performance"
AUTOTUNE = "Autotuning"
TIMELINE = "Timeline"
STALL = "Stall check"
LOGGING = "Logging"
LIBRARY = "Libraries"
FAILURE = "Failure detection"
IDENTITY = "Identity and backends (normally set by a launcher)"
LAUNCHER = "Launcher and integrations"


def knob(
    default: Value, group: str, doc: str, *, flag: str = "", switch: str = "", file: str = "", **rest: Any
) -> Any:
    """A row of the table: a field of a dataclass, whose type is the knob's.

    Its variable is HOROVOD_ and its name, unless `env` is given. `flag` is its only one; `switch` one
    that sets it, beside a `--no-` that clears it; `file` a section of the config file and the key there.
    """
    if flag or switch:
        rest["flags"] = (flag or switch,)
    if switch:
        rest["off_flags"] = (f"--no-{switch.removeprefix('--')}",)
    rest["section"], _, rest["key"] = file.partition(".")
    # Any: the annotation of the field is the type that users see.
    return field(default=default, metadata={"knob": {"group": group, "doc": doc, **rest}})


def knob_of(row: Field[Any], no_effect: bool) -> Knob:
    """The knob that a row tells of."""
    kinds = {kind.__name__: kind for kind in (bool, int, float, str, tuple)}
    kind = kinds[str(row.type).split(" ")[0].split("[")[0]]  # of "tuple[int, ...] | None": tuple
    given = {"env": f"HOROVOD_{row.name.upper()}", **row.metadata["knob"]}
    return Knob(row.name, kind, cast(Value, row.default), no_effect=no_effect, **given)
