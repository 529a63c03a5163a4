"""Line charts as SVG: enough for two plots, without a dependency."""

import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 230, 44, 56
# Distinguishable for colour-blind readers (Okabe and Ito), and by their marks.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
FONT = "font-family='sans-serif' font-size='12'"


def _nice_ticks(top):
    """Round steps from 0 to a little above `top`."""
    raw = top / 5 or 1
    unit = 10 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1, 2, 5, 10) if m * unit >= raw)
    return [step * i for i in range(math.ceil(top / step) + 1)]


def _log_ticks(bottom, top):
    ticks = []
    for exponent in range(math.floor(math.log10(bottom)),
                          math.ceil(math.log10(top)) + 1):
        ticks += [m * 10 ** exponent for m in (1, 2, 5)]
    first = max((t for t in ticks if t <= bottom), default=ticks[0])
    last = min((t for t in ticks if t >= top), default=ticks[-1])
    return [t for t in ticks if first <= t <= last]


def _number(value):
    return f"{value:,.10g}"


def _mark(kind, x, y, colour):
    shapes = (
        f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.5'",
        f"<rect x='{x - 3:.1f}' y='{y - 3:.1f}' width='6' height='6'",
        f"<path d='M{x:.1f} {y - 4:.1f}l4 7h-8z'",
        f"<path d='M{x:.1f} {y - 4:.1f}l4 4l-4 4l-4 -4z'",
        f"<path d='M{x:.1f} {y + 4:.1f}l4 -7h-8z'")
    return f"{shapes[kind % len(shapes)]} fill='{colour}'/>"


def chart(title, x_label, y_label, x_ticks, series, log_y=False):
    """`x_ticks`: [(position, text)]; `series`: [(name, [(x position, y)])]."""
    positions = [x for x, _ in x_ticks]
    positions += [x for _, points in series for x, _ in points]
    x0, x1 = min(positions), max(positions)
    ys = [y for _, points in series for _, y in points]
    if log_y:
        y_ticks = _log_ticks(min(ys), max(ys))
        scale = math.log10
    else:
        y_ticks = _nice_ticks(max(ys))
        scale = float
    y0, y1 = scale(y_ticks[0]), scale(y_ticks[-1])

    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def px(x):
        return LEFT + (x - x0) / ((x1 - x0) or 1) * (right - LEFT)

    def py(y):
        return bottom - (scale(y) - y0) / ((y1 - y0) or 1) * (bottom - TOP)

    out = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} "
        f"{HEIGHT}' {FONT} role='img'>",
        f"<title>{escape(title)}</title>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='white'/>",
        f"<text x='{LEFT}' y='26' font-size='15'>{escape(title)}</text>"]
    for y in y_ticks:
        out.append(
            f"<path d='M{LEFT} {py(y):.1f}H{right}' stroke='#ddd'/>"
            f"<text x='{LEFT - 8}' y='{py(y) + 4:.1f}' text-anchor='end'>"
            f"{_number(y)}</text>")
    for x, text in x_ticks:
        out.append(
            f"<path d='M{px(x):.1f} {TOP}V{bottom}' stroke='#eee'/>"
            f"<text x='{px(x):.1f}' y='{bottom + 18}' text-anchor='middle'>"
            f"{escape(text)}</text>")
    out.append(f"<path d='M{LEFT} {TOP}V{bottom}H{right}' fill='none' "
               "stroke='#333'/>")
    middle = (LEFT + right) / 2
    out.append(f"<text x='{middle}' y='{HEIGHT - 14}' text-anchor='middle'>"
               f"{escape(x_label)}</text>")
    out.append(f"<text transform='translate(18 {(TOP + bottom) / 2}) "
               f"rotate(-90)' text-anchor='middle'>{escape(y_label)}</text>")
    for i, (name, points) in enumerate(series):
        colour = COLOURS[i % len(COLOURS)]
        path = "L".join(f"{px(x):.1f} {py(y):.1f}" for x, y in points)
        out.append(f"<path d='M{path}' fill='none' stroke='{colour}' "
                   "stroke-width='2'/>")
        out += [_mark(i, px(x), py(y), colour) for x, y in points]
        y = TOP + 12 + 22 * i
        out.append(f"<path d='M{right + 14} {y}h24' stroke='{colour}' "
                   "stroke-width='2'/>" + _mark(i, right + 26, y, colour) +
                   f"<text x='{right + 46}' y='{y + 4}'>{escape(name)}</text>")
    return "\n".join(out + ["</svg>", ""])


def _size(size):
    for unit, bytes_ in (("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= bytes_:
            return f"{size // bytes_} {unit}"
    return f"{size} B"


def bandwidth(curves):
    """`curves`: [{"name", "points": [[size, Gbit/s], ...]}]."""
    sizes = sorted({s for c in curves for s, _ in c["points"]})
    return chart("Bandwidth over message size, loopback", "message size",
                 "Gbit/s", [(math.log2(s), _size(s)) for s in sizes],
                 [(c["name"], [(math.log2(s), v) for s, v in c["points"]])
                  for c in curves])


def latency(curves):
    """`curves`: [{"name", "points": [[percent, us], ...]}]. The ends of the
    percent axis are stretched, because latencies differ there."""
    def place(percent):
        p = min(max(percent / 100, 0.005), 0.9995)
        return math.log10(p / (1 - p))

    ticks = [(place(p), t) for p, t in (
        (0, "min"), (5, "5"), (20, "20"), (50, "50"), (80, "80"), (95, "95"),
        (99, "99"), (99.9, "99.9"))]
    return chart("Latency of 64 bytes, half a round trip, loopback",
                 "percentile", "us", ticks,
                 [(c["name"], [(place(p), v) for p, v in c["points"]])
                  for c in curves], log_y=True)
