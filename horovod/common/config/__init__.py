"""Every run-time setting, in one typed table.

The fields of :class:`Config` are the table: each carries a :class:`Knob` with its environment
variable, flags, config-file key, allowed values and description. From it come the parsing of the
environment (:func:`read`), the tunable flags and config-file keys of ``horovodrun``
(:mod:`horovod.runner.cli.flags`) and ``docs/knobs.md``::

    python -m horovod.common.config > docs/knobs.md

Imported by every ``import horovod.<framework>``: keep it light.
"""

from horovod.common.config.knob import Knob, Value
from horovod.common.config.knobs import KNOBS, Config, read, without_effect

__all__ = ["KNOBS", "Config", "Knob", "Value", "read", "without_effect"]
