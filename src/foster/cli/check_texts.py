"""What `foster check` reports, as plain text."""

from collections.abc import Sequence

from foster.cli.bundle_texts import columns
from foster.cli.learn_texts import left_out_lines
from foster.learner.check_report import KINDS, CheckReport, Finding
from foster.system.counts import counted
from foster.system.output import printable

NUM_SHOWN = 10
NUM_PHOTOS_SHOWN = 4


def check_report_text(report: CheckReport) -> str:
    """A table of what was found, then each kind with some of its photos; problems first."""
    counts = report.class_counts.values()
    test = f", {counted(report.num_test_photos, 'test photo')}" if report.num_test_photos else ""
    sizes = f"{min(counts)} each" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)} each"
    what = f"{counted(report.num_photos, 'photo')} of {counted(len(counts), 'class')}"
    lines = [f"{what} ({sizes}) in {printable(report.title)}{test}"]
    lines += left_out_lines((), report.passed_over)
    lines += list(report.remarks)
    if not report.findings:
        return "".join(f"{line}\n" for line in [*lines, "nothing was found"])
    by_kind = {kind: report.of_kind(kind) for kind in KINDS}
    rows = [
        ("problem" if KINDS[kind].is_problem else "remark", KINDS[kind].title, str(len(findings)))
        for kind, findings in by_kind.items()
        if findings
    ]
    table = columns("llr", ("", "what", "found"), rows)
    details = [_details(KINDS[kind].title, findings) for kind, findings in by_kind.items() if findings]
    return "\n".join(["".join(f"{line}\n" for line in lines), table, *details])


def _details(title: str, findings: Sequence[Finding]) -> str:
    lines = [f"{title}:"]
    for finding in findings[:NUM_SHOWN]:
        names = [photo.name for photo in finding.photos[:NUM_PHOTOS_SHOWN]]
        more = ["..."] * (len(finding.photos) > NUM_PHOTOS_SHOWN)
        photos = ", ".join([*map(printable, names), *more])
        lines.append(f"  {photos}: {printable(finding.detail)}" if photos else f"  {printable(finding.detail)}")
    lines += [f"  ... {len(findings) - NUM_SHOWN} more (--json lists all)"] * (len(findings) > NUM_SHOWN)
    return "".join(f"{line}\n" for line in lines)
