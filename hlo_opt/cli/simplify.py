"""`hlo-opt simplify`: the simplify stage alone, with what each rule did."""

from __future__ import annotations

import click

from hlo_opt.cli import files
from hlo_opt.cli.files import read_modules, show
from hlo_opt.cli.options import file_argument, read_options, run_options, split_option


@click.command("simplify")
@file_argument
@click.option("-o", "output", metavar="OUT", default="-", help="Write the simplified HLO to OUT instead of stdout.")
@click.option("--fast-math", is_flag=True, help="Also apply rules that are exact in real numbers only.")
@click.option("--check", "checks", is_flag=True, help="Run the original and the simplified module and compare.")
@click.option(
    "--check-proof", "replays", is_flag=True, help="Repeat each rewrite from its certificate (rule, place) and compare."
)
@click.option("--certificate", metavar="FILE.json", help="Write the rule, the place and the result of each rewrite.")
@run_options
@split_option
@read_options
def simplify_command(
    file: str,
    output: str,
    fast_math: bool,
    checks: bool,
    replays: bool,
    certificate: str | None,
    split: bool,
    max_errors: int,
    allow_unknown: bool,
    **options: str | int | bool | None,
) -> int:
    """Apply the rules of `hlo-opt passes --rules` to FILE until none applies, and print the result; stderr lists the
    rewrites.

    `fuse` does the same first where a module is raw (it has no fusion and no bitcast), or with --simplify always. Rules
    keep every bit of the results that HLO defines; those of --fast-math do not.
    """
    from hlo_opt.cli.running import Running

    running = Running.of(options)
    for name in (output, certificate):
        files.check_writable(name)
    modules = read_modules(file, split=split, max_errors=max_errors, allow_unknown=allow_unknown)
    from hlo_opt.passes.simplified import check_certificate, simplified
    from hlo_opt.report.simplified import certificate_text, simplified_page

    outcomes = [simplified(module, fast_math=fast_math) for module in modules]
    agreed = True
    for outcome in outcomes:
        page = simplified_page(outcome)
        if replays:
            page.add(f"  {check_certificate(outcome):,} rewrites done again: the same module")
        if checks:
            from hlo_opt.report.runs import check_page

            result = running.compare(outcome.original, outcome.module)
            page.extend(check_page(result))
            agreed &= result.ok
        show(page, err=True)
    if not agreed:
        return 1
    if certificate is not None:
        files.write_text(certificate, certificate_text(outcomes))
    files.write_module(output, files.SEPARATOR.join(str(outcome.module) for outcome in outcomes))
    return 0
