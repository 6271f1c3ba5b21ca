"""The verb `help`: pages on topics (`topics/`), on codes, and the help of verbs."""

from __future__ import annotations

import sys
from importlib import resources

import click

from hlo_opt.cli.codes import CODE, show_page
from hlo_opt.cli.files import show
from hlo_opt.cli.options import topics_offered
from hlo_opt.cli.questions import QUESTIONS, UserQuestion, question_of
from hlo_opt.diag import UsageError, did_you_mean, reason_specs
from hlo_opt.report.page import Page, Word, flowing

TOPICS = {
    "codes": "What a code such as FUS105 stands for, and the list of reasons.",
    "dump": "How to get a module out of JAX, PyTorch or TensorFlow, and which stage to take.",
    "questions": "What people ask, and the command that answers it.",
    "forms": "What a FILE may be: text, protobufs, StableHLO, snapshots, folders; and converting.",
}


@click.command("help")
@click.argument("topic", required=False, shell_complete=topics_offered)
@click.pass_context
def help_command(context: click.Context, topic: str | None) -> None:
    """Show the page of TOPIC: questions, dump, forms, codes, a verb, or a code such as FUS105. Without TOPIC, list
    them."""
    from hlo_opt.cli.group import VERBS, group

    if topic is None:
        page = Page()
        page.add("topics:")
        page.table([[Word(name, "bold"), what] for name, what in TOPICS.items()], indent=2)
        page.add()
        page.add(
            "`hlo-opt help TOPIC` shows a page, `hlo-opt help VERB` the help of a verb, `hlo-opt help CODE` the page"
        )
        page.add("of a code; `hlo-opt --help` lists the verbs.")
        show(page)
        return
    if topic == "questions":
        show(_questions())
        return
    if topic in TOPICS:
        text = resources.files("hlo_opt.cli").joinpath("topics", f"{topic}.md").read_text(encoding="utf-8")
        if topic == "codes":
            text += "".join(f"    {spec.code}  {spec.slug}\n" for spec in reason_specs())
        if sys.stdout.isatty():
            show(flowing(text))
        else:
            click.echo(text, nl=False)
        return
    if CODE.fullmatch(topic):
        show_page(topic.upper())
        return
    verb = group.get_command(context, topic)
    if verb is None and (question := question_of(topic)) is not None:
        show(_about(question, topic))
        return
    if verb is None:
        known = [*TOPICS, *VERBS]
        near = did_you_mean(topic, known) or f"topics: {', '.join(TOPICS)}; or a verb, or a code such as FUS105"
        raise UsageError(f"there is no topic {topic!r}", hint=near)
    with verb.context_class(verb, info_name=topic, parent=context.parent, max_content_width=110) as own:
        click.echo(verb.get_help(own))


def _questions() -> Page:
    page = Page()
    page.add("# Questions, and the command that answers each")
    for question in QUESTIONS:
        page.add()
        page.add(question.asked)
        page.add("    ", Word(question.command, "bold"))
    return page


def _about(question: UserQuestion, word: str) -> Page:
    """The command for a word that is no topic, and the rules of `lint` that have it in their names."""
    from hlo_opt.report.lint.base import rule_specs

    page = Page()
    page.add(f"{question.asked}  ", Word(question.command, "bold"))
    rules = [spec for spec in rule_specs().values() if word.lower().rstrip("s") in spec.slug]
    page.table([[f"hlo-opt help {spec.code}", spec.slug] for spec in rules])
    return page
