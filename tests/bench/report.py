"""The results of a run: as lines while it runs, as JSON, and as a table with
plots in docs/.
"""

import os
import statistics

import plot

def page(peer):
    """The page of docs/ with the results: a bench with --kernel-peer has its
    own."""
    return "notes/performance-rxe.md" if peer else "performance.md"


def marks(peer):
    """The lines of the page that enclose the results."""
    what = "tools/dev bench --kernel-peer" if peer else "tools/dev bench"
    return (f"<!-- {what} --write-docs: begin -->",
            f"<!-- {what} --write-docs: end -->")


def figure(value):
    """Three digits, as far as they are significant."""
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
    """Samples of one figure, for the JSON."""
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
    """One measured row as text."""
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


def behind(results):
    """Names of the rows that are behind rxe, of a bench with --kernel-peer."""
    return [row["row"] for row in results["rows"]
            if results.get("guest") and not all(targets(row))]


def summary(results):
    met = [good for row in results["rows"] for good in targets(row)]
    count = {k: sum(k in row for row in results["rows"])
             for k in ("skipped", "failed")}
    text = f"{sum(met)} of {len(met)} targets met"
    for kind, n in count.items():
        if n:
            text += f", {n} row{'s' if n > 1 else ''} {kind}"
    if results.get("guest"):
        names = behind(results)
        every = len(names) > 1 and len(names) == len(results["rows"])
        text += "; behind rxe: " + (
            "every row" if every else ", ".join(names) or "none")
    return text


def steadiness(results):
    retaken = results["retaken"]
    what = "1 figure was" if retaken == 1 else f"{retaken or 'no'} figures were"
    return (f"A word goes from processor to processor and back in "
            f"{figure(results['core_to_core_ns'])} ns mostly; "
            f"{what} taken anew, since that "
            "took much longer or less just before or after.")


def machine_lines(results):
    m = results["machine"]
    return [f"{results['date']}, {m['cpu']}, {m['cores']} cores"
            f"{', virtual' if m['virtual'] else ''}; {m['kernel']}; "
            f"{m['perftest']}; commit {m['commit']}"] + (
                [results["guest"]] if results.get("guest") else []) + (
                [steadiness(results)] if results.get("core_to_core_ns") else [])


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


def _table(results):
    """The lines of the table: a row for each of our figures and each of its
    references, with their cost if it was counted."""
    def cells(*texts):
        return "| " + " | ".join(texts) + " |"

    rows = results["rows"]
    costly = any(_cost(row.get("ours", {})) for row in rows)

    def line(name, ours, own_cost, reference="", its="", its_cost="",
             ratio="", target="", good=""):
        if costly:
            return cells(name, ours, own_cost, reference, its, its_cost,
                         ratio, target, good)
        return cells(name, ours, reference, its, ratio, target, good)

    out = [line("row", "ours", "CPU", "reference", "its figure", "CPU",
                "ratio", "target"),
           line(*["---"] * 9)]
    for row in rows:
        if "skipped" in row or "failed" in row:
            why = "skipped" if "skipped" in row else "failed"
            reason = row[why].splitlines()[0].replace("|", "/")
            out.append(line(row["row"], f"{why}: {reason}", ""))
            continue
        first = (row["row"], f"{spread(row['ours']['figures'])} {row['unit']}",
                 _cost(row["ours"]))
        if row.get("limit") is not None:
            out.append(line(*first, target=bound(row["limit"], row["less"]),
                            good=word(row["good"])))
            first = ("", "", "")
        elif not row["references"]:
            out.append(line(*first))
        for r in row["references"]:
            target = "" if r["target"] is None else \
                bound(r["target"], row["less"])
            out.append(line(*first, r["name"], spread(r["figures"]),
                            _cost(r), figure(r["ratio"]), target,
                            word(r["good"])))
            first = ("", "", "")
    return out


def markdown(results):
    """Table and plots, to stand between the markers."""
    text = (f"Medians (minimum to maximum) of {results['runs']}, ours and the "
            f"references in turn. {summary(results)}.")
    if any(_cost(row.get("ours", {})) for row in results["rows"]):
        text += (" CPU: time of all processes for a message (of latencies: a "
                 "round trip), polling and setting up included. " +
                 results["instructions"])
    out = ["", *machine_lines(results), "", text, "", *_table(results)]
    images = [f"![{name}]({name}.svg)" for name, _ in plots(results)]
    if images:
        out += ["", " ".join(images)]
    return "\n".join(out + [""])


def plots(results):
    """(name, SVG) of each plot that was measured."""
    return [(name, draw(results["plots"][name]))
            for name, draw in (("bandwidth", plot.bandwidth),
                               ("latency", plot.latency))
            if results["plots"].get(name)]


def page_parts(folder, peer):
    """The text before and after the results in the page; ValueError."""
    path = os.path.join(folder, page(peer))
    begin, end = marks(peer)
    if not os.path.exists(path):
        raise ValueError("there is no such page")
    with open(path) as f:
        text = f.read()
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"lacks the two lines '{begin}' and '{end}'")
    before, rest = text.split(begin)
    return before + begin, end + rest.split(end)[1]


def write_docs(folder, results):
    peer = bool(results.get("guest"))
    before, after = page_parts(folder, peer)
    for name, svg in plots(results):
        with open(os.path.join(folder, name + ".svg"), "w") as f:
            f.write(svg)
    with open(os.path.join(folder, page(peer)), "w") as f:
        f.write(before + "\n" + markdown(results) + after)
