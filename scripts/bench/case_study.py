"""The page docs/case-study.md and its pictures, made of what `cartpole` and `workloads` found; only what `explain` says
of the naive form is made here."""

from __future__ import annotations

from pathlib import Path

import hlo_opt
from hlo_opt.analysis.targets import DEFAULT_TARGET, target
from hlo_opt.passes import report_on, run
from hlo_opt.report import explain
from scripts.bench import drawings, study, workloads
from scripts.bench.cartpole_forms import CROSSOVER, EXPERIMENTS, FORMS, PUBLISHED
from scripts.bench.counted import PRESETS
from scripts.bench.drawings import Line, Panel
from scripts.bench.markdown import figures, per_second, rounded, size, table, times
from scripts.bench.study import Point, Row, Study
from scripts.bench.workloads import RESULTS, ROOT, Workloads

PAGE = ROOT / "docs" / "case-study.md"
PICTURES = ROOT / "docs" / "case-study"
DUMP = "testdata/dumps/cartpole_scan_custom_call.hlo"
NAIVE, BEST = "call", "unrolled"
"""The form that the paper begins with, and the fastest that its authors get out of XLA."""
DEVICE = target(DEFAULT_TARGET)
SHORT = DEVICE.title.removeprefix("NVIDIA ").split()[0]


def experiment_table(found: Study) -> str:
    """What the paper measured, and what its changes come to here; every gain is over the naive form as XLA runs it."""
    naive = found.row(NAIVE)
    rows = []
    for experiment in EXPERIMENTS:
        form = experiment.form
        if form == "by hand":
            best = found.row(BEST).device.xla.us
            ours = min(row.device.ours.us for row in found.rows if row.form in ("joined", "separate", BEST))
            told = f"{times(naive.device.xla.us / ours)}, {times(best / ours)} the best XLA"
            rows.append([f"{experiment.change}; here: what hlo-opt makes", experiment.paper, "-", told, "-", "-"])
            continue
        if form == "relaxed":
            gain = times(found.row("joined").device.xla.us / found.relaxed.us)
            rows.append([experiment.change, experiment.paper, f"{gain} more", "-", "-", "-"])
            continue
        row = found.row(form)
        prices = (times(naive.device.xla.us / us) for us in (row.device.xla.us, row.device.ours.us))
        clocks = (times(naive.timed.xla_us / us) for us in (row.timed.xla_us, row.timed.host_us))
        rows.append([experiment.change, experiment.paper, *prices, *clocks])
    device = f"on an {SHORT}, by price"
    titles = [
        "what changes",
        "the paper, measured on a GPU",
        f"XLA's fusion {device}",
        f"hlo-opt {device}",
        "XLA:CPU, measured",
        "hlo-opt on the CPU, measured",
    ]
    return table(titles, rows)


def form_table(found: Study) -> str:
    """What each form comes to on the device."""
    titles = [
        "form",
        "kernels per step, XLA",
        "ours",
        "launches, XLA",
        "ours",
        "bytes, XLA",
        "ours",
        "us by price, XLA",
        "ours",
    ]
    rows = []
    for row in found.rows:
        cells = [FORMS[row.form].title]
        sides = row.device.xla, row.device.ours
        cells += [figures(side.in_loops / found.steps) for side in sides]
        cells += [f"{side.launches:,}" for side in sides]
        cells += [size(side.bytes) for side in sides]
        cells += [figures(side.us) for side in sides]
        rows.append(cells)
    return table(titles, rows)


def time_table(found: Study) -> str:
    """Times on the CPU."""
    titles = ["form", "ms, hlo-opt", "ms, XLA:CPU", "ratio", "quartiles", "steps a second, hlo-opt", "XLA:CPU"]
    rows = []
    for row in found.rows:
        timed = row.timed
        rates = (per_second(found.work / us * 1e6) for us in (timed.host_us, timed.xla_us))
        between = f"{figures(timed.lower)} to {figures(timed.upper)}"
        clocks = figures(timed.host_us / 1e3), figures(timed.xla_us / 1e3), figures(timed.ratio)
        rows.append([FORMS[row.form].title, *clocks, between, *rates])
    return table(titles, rows)


def machine_table(found: Study) -> str:
    """Registers and instructions, or a word on why there are none."""
    titles = ["form", "registers of a thread, XLA", "ours", "change", "instructions per step, XLA", "ours", "change"]
    rows = []
    for row in found.rows:
        xla, ours = row.device.xla_machine, row.device.ours_machine
        if xla is None or ours is None:
            return "NVRTC was not there to compile the kernels.\n"
        per_step = [machine.instructions / found.work for machine in (xla, ours)]
        told = [
            figures(count) + (" and library calls" if m.calls else "")
            for count, m in zip(per_step, (xla, ours), strict=True)
        ]
        more = f"{ours.registers / xla.registers - 1:+.0%}", f"{per_step[1] / per_step[0] - 1:+.0%}"
        rows.append([FORMS[row.form].title, f"{xla.registers}", f"{ours.registers}", more[0], *told, more[1]])
    return table(titles, rows)


def payback_table(found: Study) -> str:
    """Seconds to compile, and after how many rollouts they are paid back."""
    titles = [
        "form",
        "s to compile for the CPU, hlo-opt",
        "XLA:CPU",
        "paid back after",
        f"s to compile for an {SHORT}, hlo-opt",
        "paid back after, by price",
    ]
    rows = []
    for row in found.rows:
        timed, device = row.timed, row.device
        cpu = paid_back(timed.host_compile_s - timed.xla_compile_s, timed.xla_us - timed.host_us)
        cells = [FORMS[row.form].title, figures(timed.host_compile_s, 2), figures(timed.xla_compile_s, 2), cpu]
        if device.build_s is None:
            cells += ["-", "-"]
        else:
            cells += [figures(device.build_s, 2), paid_back(device.build_s, device.xla.us - device.ours.us)]
        rows.append(cells)
    return table(titles, rows)


def paid_back(seconds: float, saved_us: float) -> str:
    """After how many rollouts seconds more of compiling are won back."""
    if saved_us <= 0:
        return "never"
    count = max(0.0, seconds) * 1e6 / saved_us
    return "at once" if count < 1 else f"{rounded(count)} rollouts"


def crossover_table(found: Study, form: str) -> str:
    """Steps a second by the number of environments."""
    titles = [
        "environments",
        "XLA:CPU",
        "hlo-opt on the CPU",
        f"XLA's fusion on an {SHORT}, by price",
        f"hlo-opt on an {SHORT}, by price",
    ]
    rows = []
    for point in points(found, form):
        clocks = point.xla_cpu_us, point.host_us, point.xla_device_us, point.our_device_us
        rows.append([f"{point.environments:,}", *(per_second(point.rate(us)) for us in clocks)])
    return table(titles, rows)


def points(found: Study, form: str) -> list[Point]:
    """Of a form, fewest environments first."""
    return sorted((p for p in found.points if p.form == form), key=lambda p: p.environments)


def lines(found: Study, form: str) -> tuple[Line, ...]:
    """Steps a second over environments."""
    of_form = points(found, form)

    def line(name: str, us: str, dashed: bool = False) -> Line:
        return Line(name, tuple((float(p.environments), p.rate(getattr(p, us))) for p in of_form), dashed)

    return (
        line("XLA:CPU, measured", "xla_cpu_us"),
        line("hlo-opt on the CPU, measured", "host_us"),
        line(f"XLA's fusion on an {SHORT}, by price", "xla_device_us", True),
        line(f"hlo-opt on an {SHORT}, by price", "our_device_us", True),
    )


def crossover_words(found: Study) -> str:
    """Where the device overtakes the CPU, in words."""
    told = []
    for form in CROSSOVER:
        cpu, host, xla, ours = (line.points for line in lines(found, form))
        where = [drawings.crossing(*pair) for pair in ((cpu, xla), (host, ours))]
        known = [_where(n, cpu[0][0]) for n in where]
        told.append(f"*{FORMS[form].title}*: XLA on the device overtakes XLA:CPU {known[0]}; hlo-opt on the device "
                    f"overtakes hlo-opt on the CPU {known[1]}.")  # fmt: skip
    return "\n".join(f"- {line}" for line in told) + "\n"


def _where(environments: float | None, least: float) -> str:
    if environments is None:
        return "nowhere in this range"
    return "from the first point on" if environments <= least else f"at about {rounded(environments)} environments"


def published_table(found: Study) -> str:
    """Steps a second beside those of others."""
    rows = [[p.who, p.what, p.device, "by its authors", per_second(p.steps)] for p in PUBLISHED]
    for row in (found.row("random"), found.row("controlled")):
        title = f"CartPole, {FORMS[row.form].title}"
        here = f"{found.machine.processors} processors"
        rows.append(["XLA:CPU", title, here, "measured here", per_second(found.work / row.timed.xla_us * 1e6)])
        rows.append(["hlo-opt", title, here, "measured here", per_second(found.work / row.timed.host_us * 1e6)])
        rows.append(["hlo-opt", title, f"one {SHORT}", "by price", per_second(found.work / row.device.ours.us * 1e6)])
    most = max(found.points, key=lambda p: p.rate(p.our_device_us))
    told = f"CartPole, {FORMS[most.form].title}, {most.environments:,} environments"
    rows.append(["hlo-opt", told, f"one {SHORT}", "by price", per_second(most.rate(most.our_device_us))])
    return table(["who", "what", "on", "how known", "steps a second"], rows, words=4)


def tables(found: Study) -> str:
    """All of it as a file of its own."""
    parts = [
        f"`{found.command}`\n\n{found.environments:,} environments, {found.steps:,} steps. {found.machine}\n",
        "The paper's experiments:\n",
        experiment_table(found),
        f"Each form on an {DEVICE.title}:\n",
        form_table(found),
        "On the CPU, medians of runs in turns:\n",
        time_table(found),
        "In the machine code:\n",
        machine_table(found),
        "Compiling:\n",
        payback_table(found),
        *(part for form in CROSSOVER for part in (f"Steps a second, {FORMS[form].title}:\n",
            crossover_table(found, form))),
        crossover_words(found),
        "Beside others:\n",
        published_table(found),
    ]  # fmt: skip
    return "\n".join(parts)


def pictures(found: Study) -> dict[str, str]:
    """SVG texts by file name: each form, and the crossover."""
    made = {f"{row.form}.svg": picture(row) for row in found.rows}
    panels = [Panel(FORMS[form].title, lines(found, form)) for form in CROSSOVER]
    return {**made, "crossover.svg": drawings.chart(panels, "environments", "steps a second")}


def picture(row: Row) -> str:
    """The kernels of a form."""
    sides = ("as XLA fuses it", row.device.xla), ("by hlo-opt", row.device.ours)
    return drawings.kernels(FORMS[row.form].title, sides)


def explained(preset: str) -> str:
    """What `explain` says of the naive form, without its single edges."""
    module = hlo_opt.parse((ROOT / DUMP).read_text(encoding="utf-8"), filename=DUMP)
    return str(explain.as_page(report_on(run(module, preset)), [], most=0)).rstrip()


def page(found: Study, rest: Workloads) -> str:
    """The case study for somebody who has not seen a compiler from inside."""
    template = Path(__file__).with_name("case_study.md").read_text(encoding="utf-8")
    naive, ours = found.row(NAIVE).device.xla, found.row(NAIVE).device.ours
    torch = "PyTorch was not installed." if rest.torch is None else f"PyTorch is {rest.torch['torch']}."
    gallery = (
        f"**{form.title}**: {form.about}.\n\n![{form.title}](case-study/{form.name}.svg)\n"
        for form in FORMS.values()
        if form.name != NAIVE
    )
    filled = {
        "command": found.command,
        "work_command": rest.command,
        "dump": DUMP,
        "naive_gain": times(naive.us / ours.us),
        "best_gain": times(naive.us / found.row(BEST).device.xla.us),
        "naive": f"{naive.launches:,}",
        "per_step": figures(naive.in_loops / found.steps),
        "ours": f"{ours.launches:,}",
        "environments": f"{found.environments:,}",
        "steps": f"{found.steps:,}",
        "device": DEVICE.title,
        "machine": str(found.machine),
        "before": explained(PRESETS["xla"]),
        "after": explained(PRESETS["ours"]),
        "experiments": experiment_table(found),
        "forms": form_table(found),
        "gallery": "\n".join(gallery),
        "times": time_table(found),
        "crossover_words": crossover_words(found),
        "crossover": "\n".join(f"*{FORMS[form].title}*\n\n{crossover_table(found, form)}" for form in CROSSOVER),
        "code": machine_table(found),
        "payback": payback_table(found),
        "published": published_table(found),
        "work_device": workloads.device_table(rest),
        "work_times": workloads.time_table(rest),
        "work_kernels": workloads.kernel_table(rest),
        "work_machine": f"{rest.machine} {torch}",
    }
    return template.format(**filled)


def results() -> tuple[Study, Workloads]:
    """What is kept of an earlier run."""
    texts = ((RESULTS / name).read_text(encoding="utf-8") for name in ("cartpole.json", "workloads.json"))
    return study.from_json(next(texts)), workloads.from_json(next(texts))


def save(found: Study, rest: Workloads) -> None:
    """Write the figures, the tables, the page and the pictures."""
    (RESULTS / "cartpole.json").write_text(found.as_json(), encoding="utf-8")
    (RESULTS / "cartpole.md").write_text(tables(found), encoding="utf-8")
    PAGE.write_text(page(found, rest), encoding="utf-8")
    PICTURES.mkdir(exist_ok=True)
    for name, text in pictures(found).items():
        (PICTURES / name).write_text(text, encoding="utf-8")
