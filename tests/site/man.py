"""The manual page of the ``abp`` command, which the wheel installs."""

from __future__ import annotations

from tests.site.commands import Command, commands

_SEE = "The folder docs/ of the source distribution, with a tutorial; `make docs` makes a site of it."


def manual() -> str:
    """Return the page as roff, for man(7)."""
    abp, *rest = commands()
    lines = [".TH ABP 1", ".SH NAME", f"abp \\- {_text(abp.paragraphs[0].rstrip('.'))}"]
    lines += [".SH SYNOPSIS", f".B {_text(abp.usage)}", ".SH OPTIONS", *_parameters(abp)]
    lines += [".SH COMMANDS"]
    for command in rest:
        lines += [f".SS {_text(command.path)}", f".B {_text(command.usage)}"]
        for paragraph in command.paragraphs:
            lines += [".PP", _text(paragraph)]
        lines += _parameters(command)
    lines += [".SH EXIT STATUS", "0 success, 1 the work failed, 2 bad usage; ended by a signal, 128 and its number."]
    lines += [".SH SEE ALSO", _text(_SEE)]
    return "\n".join(lines) + "\n"


def _parameters(command: Command) -> list[str]:
    return [line for name, text in command.parameters for line in (".TP", f".B {_text(name)}", _text(text))]


def _text(text: str) -> str:
    """Escape what roff would read as its own: a backslash, a hyphen, and a dot or a quote at the start of a line."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + escaped if escaped.startswith((".", "'")) else escaped
