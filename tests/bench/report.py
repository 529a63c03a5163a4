"""What a run has found: as lines while it goes on, as JSON, and as a table
with plots in docs/."""

import os
import statistics

import plot

BEGIN = "<!-- tools/dev bench --write-docs: begin -->"
END = "<!-- tools/dev bench --write-docs: end -->"


def figure(value):
    """Three digits, as far as they mean something."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 1:
        return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return f"{value:.3g}"


def spread(values):
    if len(values) == 1:
        return figure(values[0])
    return (f"{figure(statistics.median(values))} ({figure(min(values))} to "
            f"{figure(max(values))})")


def numbers(samples):
    """Samples of one thing as what goes into the JSON."""
    values = [s.value for s in samples]
    out = {"figures": values, "median": statistics.median(values),
           "min": min(values), "max": max(values)}
    for name, get in (("cpu_us_per_message", lambda s: s.messages),
                      ("cpu_ns_per_byte", lambda s: s.bytes)):
        each = [s.cpu_s / get(s) for s in samples if get(s) and s.cpu_s]
        if each:
            out[name] = statistics.median(each) * (
                1e6 if "message" in name else 1e9)
    return out


def instructions(sample):
    out = {}
    if sample.instructions and sample.messages:
        out["instructions_per_message"] = sample.instructions / sample.messages
    if sample.instructions and sample.bytes:
        out["instructions_per_byte"] = sample.instructions / sample.bytes
    return out


def meets(value, target, less):
    return value <= target if less else value >= target


def word(good):
    return {True: "good", False: "missed", None: ""}[good]


def bound(target, less):
    return f"{'at most' if less else 'at least'} {figure(target)}"


def lines(row):
    """One measured row, for people who watch."""
    if "skipped" in row:
        return [f"{row['row']}: skipped: {row['skipped']}"]
    if "failed" in row:
        return [f"{row['row']}: failed: {row['failed']}"]
    text = f"{row['row']}: {spread(row['ours']['figures'])} {row['unit']}"
    if row.get("limit") is not None:
        text += f"; {bound(row['limit'], row['less'])}: {word(row['good'])}"
    out = [text]
    for r in row["references"]:
        text = (f"    / {r['name']}: {spread(r['figures'])}; ratio "
                f"{figure(r['ratio'])}")
        if r["target"] is not None:
            text += f", {bound(r['target'], row['less'])}: {word(r['good'])}"
        out.append(text)
    return out


def targets(row):
    """Whether each target of a row was met."""
    found = [r["good"] for r in row.get("references", [])] + [row.get("good")]
    return [good for good in found if good is not None]


def summary(results):
    met = [good for row in results["rows"] for good in targets(row)]
    count = {k: sum(k in row for row in results["rows"])
             for k in ("skipped", "failed")}
    text = f"{sum(met)} of {len(met)} targets met"
    for kind, n in count.items():
        if n:
            text += f", {n} row{'s' if n > 1 else ''} {kind}"
    return text


def machine_lines(results):
    m = results["machine"]
    return [f"{results['date']}, {m['cpu']}, {m['cores']} cores"
            f"{', virtual' if m['virtual'] else ''}; {m['kernel']}; I/O by "
            f"{m['io']}; {m['perftest']}; commit {m['commit']}"]


def _cost(numbers_):
    """CPU and instructions of one figure, in a cell."""
    parts = []
    if numbers_.get("cpu_us_per_message"):
        parts.append(f"{figure(numbers_['cpu_us_per_message'])} us")
    if numbers_.get("instructions_per_message"):
        parts.append(f"{figure(numbers_['instructions_per_message'])} "
                     "instructions")
    if numbers_.get("instructions_per_byte"):
        parts.append(f"{figure(numbers_['instructions_per_byte'])} a byte")
    return ", ".join(parts)


def markdown(results):
    """Table and plots, for between the markers."""
    out = ["", *machine_lines(results), "",
           f"Medians (minimum to maximum) of {results['runs']}, ours and the "
           "references in turn. " + summary(results) + ".", "",
           "| row | ours | reference | its figure | ratio | target | |",
           "| --- | --- | --- | --- | --- | --- | --- |"]
    for row in results["rows"]:
        if "skipped" in row or "failed" in row:
            why = "skipped" if "skipped" in row else "failed"
            reason = row[why].splitlines()[0].replace("|", "/")
            out.append(f"| {row['row']} | {why}: {reason} | | | | | |")
            continue
        ours = f"{spread(row['ours']['figures'])} {row['unit']}"
        first = row["row"]
        if row.get("limit") is not None:
            out.append(f"| {first} | {ours} | | | | "
                       f"{bound(row['limit'], row['less'])} | "
                       f"{word(row['good'])} |")
            first = ours = ""
        for r in row["references"]:
            target = "" if r["target"] is None else \
                bound(r["target"], row["less"])
            out.append(f"| {first} | {ours} | {r['name']} | "
                       f"{spread(r['figures'])} | {figure(r['ratio'])} | "
                       f"{target} | {word(r['good'])} |")
            first = ours = ""
    costs = []
    for row in results["rows"]:
        if not _cost(row.get("ours", {})):
            continue
        seen = set()
        for r in row["references"]:
            name = r["name"].removesuffix(" (first bar)")
            if name in seen or not _cost(r):
                continue
            costs.append(f"| {row['row'] if not seen else ''} | "
                         f"{_cost(row['ours']) if not seen else ''} | "
                         f"{name} | {_cost(r)} |")
            seen.add(name)
    if costs:
        out += ["", "CPU time of all processes for a message (of latencies: a "
                "round trip), polling and setting up included. " + results["instructions"], "",
                "| row | ours | reference | its |", "| --- | --- | --- | --- |",
                *costs]
    for name, _ in plots(results):
        out += ["", f"![{name}]({name}.svg)"]
    return "\n".join(out + [""])


def plots(results):
    """(name, SVG) of each plot that was measured."""
    return [(name, draw(results["plots"][name]))
            for name, draw in (("bandwidth", plot.bandwidth),
                               ("latency", plot.latency))
            if results["plots"].get(name)]


def page_parts(path):
    """What stands before and after the results in a page; ValueError."""
    if not os.path.exists(path):
        raise ValueError("there is no such page")
    with open(path) as f:
        text = f.read()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"lacks the two lines '{BEGIN}' and '{END}'")
    before, rest = text.split(BEGIN)
    return before, rest.split(END)[1]


def write_docs(folder, results):
    path = os.path.join(folder, "performance.md")
    before, after = page_parts(path)
    for name, svg in plots(results):
        with open(os.path.join(folder, name + ".svg"), "w") as f:
            f.write(svg)
    with open(path, "w") as f:
        f.write(before + BEGIN + "\n" + markdown(results) + END + after)
