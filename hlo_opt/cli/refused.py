"""Command lines that click refuses, as errors with a code and a hint like all others."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import click

from hlo_opt.cli.questions import question_of
from hlo_opt.diag import UsageError, did_you_mean
from hlo_opt.diag.errors import nearest, printable

NO_VERB = "HLO360"
"""There is no such verb."""
NO_OPTION = "HLO361"
"""The verb has no such option."""
MISSING = "HLO362"
"""An argument or an option that the verb needs is missing."""
WRONG_VALUE = "HLO363"
"""An option or an argument does not take this value."""
WRONG_FORM = "HLO364"
"""An option without its value, a value that it does not take, or an argument too many."""


class NoVerbError(click.UsageError):
    """`word` stands where a verb should."""

    def __init__(self, word: str, context: click.Context) -> None:
        super().__init__(f"there is no verb '{printable(word)}'", context)
        self.word = word


def coded(error: click.ClickException, verbs: Sequence[str], arguments: Sequence[str]) -> UsageError:
    """The error of a command line, with the nearest spelling as its hint where there is one.

    `verbs` are the names of all verbs, `arguments` is the command line after the program's name.
    """
    context = getattr(error, "ctx", None)
    verb = _verb(context, verbs, arguments)
    whole = f"hlo-opt {verb}".rstrip()
    help_of_verb = f"`{whole} --help` shows what it takes"
    if isinstance(error, NoVerbError):
        return UsageError(error.message, code=NO_VERB, hint=_instead_of_verb(error.word, verbs))
    if isinstance(error, click.NoSuchOption):
        return UsageError(
            f"{whole} has no option '{error.option_name}'",
            code=NO_OPTION,
            hint=_instead_of_option(error.option_name, context, verb),
        )
    if isinstance(error, click.MissingParameter):
        name = _name(error.param, context)
        if isinstance(error.param, click.Option) and error.param.metavar:
            name += f" {error.param.metavar}"
        return UsageError(f"{whole} needs {name}", code=MISSING, hint=help_of_verb)
    if isinstance(error, click.BadParameter):
        message = f"{_name(error.param, context)}: {error.message.rstrip('.')}"
        choices = _choices(error.param)
        hint = did_you_mean(_value(error.message), choices) or help_of_verb
        return UsageError(message, code=WRONG_VALUE, hint=hint)
    message = error.message.rstrip(".")
    if message.startswith("Got unexpected extra argument"):
        words = message.partition("(")[2].rpartition(")")[0]
        message = f"'{words}' is more than it takes"
        return UsageError(f"{whole}: {message}", code=WRONG_FORM, hint=help_of_verb)
    return UsageError(f"{whole}: {message[:1].lower()}{message[1:]}", code=WRONG_FORM, hint=help_of_verb)


def _verb(context: click.Context | None, verbs: Sequence[str], arguments: Sequence[str]) -> str:
    """The verb that refuses the command line; empty for the program itself."""
    if context is not None:
        return context.info_name or "" if context.parent is not None else ""
    return next((a for a in arguments if a in verbs), "")


def _name(parameter: click.Parameter | None, context: click.Context | None) -> str:
    """A parameter as help shows it: `--keep`, `FILE`."""
    if parameter is None:
        return "an argument"
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return parameter.make_metavar(context or click.Context(click.Command(None))).strip("[].").rstrip(".")


def _choices(parameter: click.Parameter | None) -> list[str]:
    kind = getattr(parameter, "type", None)
    return [str(choice) for choice in kind.choices] if isinstance(kind, click.Choice) else []


def _value(message: str) -> str:
    """The value that a message of click begins with, in quotes; empty where there is none."""
    return message.split("'")[1] if message.startswith("'") else ""


def _instead_of_verb(word: str, verbs: Sequence[str]) -> str:
    close = did_you_mean(word, verbs)
    if close is None and os.path.exists(word):
        return f"a verb comes before the file: hlo-opt explain {printable(word)}"
    question = question_of(word)
    return close if question is None and close else str(question or "`hlo-opt --help` lists the verbs")


def _instead_of_option(name: str, context: click.Context | None, verb: str) -> str:
    """Where the option belongs, or the command that people mean by it, or the nearest spelling, or where all are
    listed."""
    if context is None:
        return "`hlo-opt --help` lists all"
    own = [spelling for p in context.command.params for spelling in (*p.opts, *p.secondary_opts)]
    close = _near_option(name, own) or _named_by_option(name, context)
    if (question := question_of(name)) is not None and close is None:
        return str(question)
    if not verb:
        return close or "`hlo-opt --help` lists its options; those of a verb follow the verb"
    if any(name in p.opts for p in context.find_root().command.params):
        return f"it comes before the verb: hlo-opt {name} {verb}"
    return close or f"{_verbs_with(name, context)}`hlo-opt {verb} --help` lists all"


VERBS_SHOWN = 3
"""Verbs with an option that a hint names."""


def _verbs_with(name: str, context: click.Context) -> str:
    """The verbs that have an option, for one that this verb has not; empty without one."""
    root = context.find_root()
    group = root.command
    if not isinstance(group, click.Group):
        return ""
    verbs = [(verb, group.get_command(root, verb)) for verb in group.list_commands(root)]
    having = [verb for verb, command in verbs if command and any(name in p.opts for p in command.params)]
    if len(having) > VERBS_SHOWN:
        having[VERBS_SHOWN:] = [f"{len(having) - VERBS_SHOWN} more"]
    listed = " and ".join(filter(None, (", ".join(having[:-1]), *having[-1:])))
    return f"an option of {listed}; " if having else ""


def _named_by_option(name: str, context: click.Context) -> str | None:
    """The hint for what is a value of the only option of a verb whose help names it, such as `--kernels` of bisect."""
    bare = re.compile(rf"(?<![\w-]){re.escape(name.lstrip('-'))}(?![\w-])")
    options = [p for p in context.command.params if isinstance(p, click.Option) and p.metavar and p.help]
    named = [o for o in options if bare.search(o.help or "")]
    if len(named) != 1:
        return None
    return f"{_name(named[0], context)} {named[0].metavar}: {(named[0].help or '').strip()}"


def _near_option(name: str, known: Sequence[str]) -> str | None:
    """The hint for a misspelt option. Its dashes do not make it like another one."""
    bare = name.lstrip("-")
    close = nearest(bare, [k.lstrip("-") for k in known if k.startswith("--")])
    return None if close is None else f"did you mean --{close}?"
