"""The verb `help`: pages on topics, which lie beside this file, and what verbs do."""

from __future__ import annotations

from importlib import resources

import click

from hlo_opt.cli.options import topics_offered
from hlo_opt.diag import UsageError, did_you_mean

TOPICS = {
    "dump": "How to get a module out of JAX, PyTorch or TensorFlow, and which stage to take.",
    "forms": "What a FILE may be: text, protobufs, StableHLO, snapshots, folders; and converting.",
}


@click.command("help")
@click.argument("topic", required=False, shell_complete=topics_offered)
@click.pass_context
def help_command(context: click.Context, topic: str | None) -> None:
    """Show the page on TOPIC, or the help of a verb; without one, list the topics."""
    from hlo_opt.cli.group import VERBS, group

    if topic is None:
        width = max(map(len, TOPICS))
        lines = [f"  {name:{width}}  {what}" for name, what in TOPICS.items()]
        click.echo(
            "\n".join(
                [
                    "topics:",
                    *lines,
                    "",
                    "`hlo-opt help TOPIC` shows a page, `hlo-opt help VERB` what a verb does; `hlo-opt --help` lists "
                    "the verbs.",
                ]
            )
        )
        return
    if topic in TOPICS:
        click.echo(
            resources.files("hlo_opt.cli").joinpath("topics", f"{topic}.md").read_text(encoding="utf-8"), nl=False
        )
        return
    verb = group.get_command(context, topic)
    if verb is None:
        known = [*TOPICS, *VERBS]
        raise UsageError(
            f"there is no topic {topic!r}", hint=did_you_mean(topic, known) or f"topics: {', '.join(TOPICS)}"
        )
    with click.Context(verb, info_name=topic, parent=context.parent, max_content_width=110) as own:
        click.echo(verb.get_help(own))
