"""The border between Python and the core: what _abi.py says about csrc/hvd.h is true."""

from __future__ import annotations

import ctypes
import dataclasses
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from util_paths import ROOT

from horovod import _abi, _core
from horovod.common import config

HEADER = ROOT / "csrc" / "hvd.h"
STRUCTS: dict[str, type[ctypes.Structure]] = {
    "hvd_peer": _abi.Peer,
    "hvd_mpi": _abi.Mpi,
    "hvd_knobs": _abi.Knobs,
    "hvd_world": _abi.World,
    "hvd_tensor": _abi.Tensor,
    "hvd_request": _abi.Request,
    "hvd_summary": _abi.SummaryStruct,
    "hvd_autotune_options": _abi.AutotuneOptions,
    "hvd_event": _abi.EventStruct,
}
# Structs that only native adapters see.
NATIVE = {"hvd_outcome", "hvd_place"}


def test_every_struct_of_the_header_is_compared() -> None:
    assert set(re.findall(r"typedef struct (\w+) \{", HEADER.read_text())) == STRUCTS.keys() | NATIVE
    ours = [
        each for each in vars(_abi).values() if isinstance(each, type) and issubclass(each, ctypes.Structure)
    ]
    assert ours == list(STRUCTS.values())


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_structs_have_the_layout_of_the_header(tmp_path: Path) -> None:
    lines = []
    for name, struct in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field in struct._fields_:
            lines.append(f'printf("{name}.{field[0]} %zu\\n", offsetof({name}, {field[0]}));')
    source = tmp_path / "layout.c"
    source.write_text('#include <stdio.h>\n#include "hvd.h"\nint main(void) {' + "\n".join(lines) + "}")
    subprocess.run(["cc", f"-I{HEADER.parent}", source, "-o", tmp_path / "layout"], check=True, timeout=60)
    output = subprocess.run(
        [tmp_path / "layout"], capture_output=True, text=True, check=True, timeout=10
    ).stdout
    native = dict(line.split() for line in output.splitlines())
    ours = {name: str(ctypes.sizeof(struct)) for name, struct in STRUCTS.items()}
    for name, struct in STRUCTS.items():
        ours.update(
            {f"{name}.{field[0]}": str(getattr(struct, field[0]).offset) for field in struct._fields_}
        )
    assert ours == native


@pytest.mark.parametrize("name", STRUCTS)
def test_structs_have_the_fields_of_the_header(name: str) -> None:
    body = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", HEADER.read_text(), re.DOTALL)
    assert body is not None
    code = re.sub(r"//.*", "", body[1])
    fields = [
        each for line in code.split(";") for each in re.findall(r"(\w+)(?:\[\w+\])?\s*(?:,|$)", line.strip())
    ]
    assert fields == [field[0] for field in STRUCTS[name]._fields_]


def test_constants_are_those_of_the_header() -> None:
    header = HEADER.read_text()
    values = {name: int(value) for name, value in re.findall(r"HVD_(\w+)\s*=\s*(-?\d+)", header)}
    for name, value in values.items():
        if name.lower() in _abi.DTYPES:
            assert _abi.DTYPES[value] == name.lower()
        elif name.startswith("TRANSPORT_"):
            assert _abi.TRANSPORTS[name.removeprefix("TRANSPORT_").lower()] == value
        elif name.startswith("LOG_"):
            assert _abi.LOG_LEVELS[name.removeprefix("LOG_").lower()] == value
        else:
            assert getattr(_abi, name) == value, name


def test_there_is_one_version_number() -> None:
    assert f"#define HVD_ABI_VERSION {_abi.ABI_VERSION}\n" in HEADER.read_text()
    assert _core._lib.hvd_abi_version() == _abi.ABI_VERSION


def test_functions_are_those_of_the_header() -> None:
    declared = set(re.findall(r"HVD_API [\w* ]*?\b(hvd_\w+)\(", HEADER.read_text()))
    native_only = {
        "hvd_run_default",
        "hvd_submit_default",
        "hvd_end_step_default",
        "hvd_help_default",
        "hvd_default_place",
        "hvd_default_process_set",
    }
    assert declared - native_only == _abi.SIGNATURES.keys()


def test_knobs_of_the_core_are_knobs_of_the_configuration() -> None:
    knobs = {field.name: field.default for field in dataclasses.fields(config.Config)}
    assert set(_abi.KNOBS) <= knobs.keys()
    native = _core._native_knobs(config.read({"HOROVOD_CACHE_CAPACITY": "7", "HOROVOD_LOG_LEVEL": "error"}))
    assert (native.cache_capacity, native.log_level) == (7, _abi.LOG_LEVELS["error"])


def test_missing_library_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match=r"libhorovod\.so.*Reinstall"):
        _abi.load(str(tmp_path / "libhorovod.so"))
