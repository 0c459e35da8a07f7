"""The API reference as users read it: an extension of Griffe, which inspects the modules."""

from __future__ import annotations

import re
from typing import Any

import griffe

# How users write the values that are the defaults of these parameters.
DEFAULTS = {("process_set", "ProcessSet(process_set_id=0"): "global_process_set", ("op", "0"): "Average"}


def markdown(docstring: str) -> str:
    """A docstring, which is plain text, as Markdown: one item for each argument that it explains."""
    text = re.sub(r"::$", ":", docstring, flags=re.MULTILINE)
    return re.sub(
        r"^(?=`\w+`(?:, `\w+`)*: )",
        "- ",
        re.sub(r"(?<!\n)\n(?=`\w+`: )", "\n\n", text, count=1),
        flags=re.MULTILINE,
    )


class Reference(griffe.Extension):
    """Functions that are methods of an adapter's object have no `self` for those who call them."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Reads what can't be imported beside the other frameworks, which is MXNet, from the sources."""
        if pkg.name != "horovod" or not loader.force_inspection:
            return
        reader = griffe.GriffeLoader(
            extensions=loader.extensions,
            search_paths=loader.finder.search_paths,
            docstring_parser=loader.docstring_parser,
            allow_inspection=False,
        )
        package = reader.load("horovod", try_relative_path=False)
        pkg.set_member("mxnet", package["mxnet"])

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)

    def on_function(self, *, func: griffe.Function, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        if func.parent is not None and func.parent.is_module and "self" in func.parameters:
            del func.parameters["self"]
        for parameter in func.parameters:
            for (name, start), written in DEFAULTS.items():
                if parameter.name == name and str(parameter.default).startswith(start):
                    parameter.default = written
