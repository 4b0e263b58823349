"""An SVG of lines over bits that stands alone, in the colours of the reader's scheme, light or dark."""

from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 380, 56, 130, 44, 46
COLOURS = [("#0b6bcb", "#6cb6ff"), ("#6b7280", "#b4bcc8"), ("#5f9e0a", "#a3d65c"), ("#8b3fc7", "#cf9bff"), ("#b0157a", "#ff8ac9"),
           ("#c2410c", "#ff9d66")]
LEAST_SPAN, MOST_SPAN = 2.0, 8.0  # percentage points on the axis; lower values are cut off


def style():
    light = "".join(f".c{i}{{stroke:{c[0]}}}.f{i}{{fill:{c[0]}}}" for i, c in enumerate(COLOURS))
    dark = "".join(f".c{i}{{stroke:{c[1]}}}.f{i}{{fill:{c[1]}}}" for i, c in enumerate(COLOURS))
    return ("<style>text{font:13px system-ui,sans-serif;fill:#24292f}.back{fill:#fff}.grid{stroke:#d8dee4}"
            ".float{stroke:#57606a;stroke-dasharray:5 4}path{fill:none;stroke-width:2}.first{stroke-width:3.5}" + light +
            "@media(prefers-color-scheme:dark){text{fill:#d6dde5}.back{fill:#0d1117}.grid{stroke:#30363d}"
            ".float{stroke:#8b949e}" + dark + "}</style>")


def steps(low, high):
    """Returns the round values from `low` to `high`."""
    step = next(s for s in (0.25, 0.5, 1, 2, 5, 10) if (high - low) / s <= 7)
    first = int(low // step) + (low % step > 0)
    return [step * i for i in range(first, int(high // step) + 1)]


def spread(wanted, gap, low, high):
    """Returns positions near the wanted ones, in the same order and at least `gap` apart."""
    order, placed = sorted(range(len(wanted)), key=wanted.__getitem__), list(wanted)
    for before, index in zip([None, *order], order):
        placed[index] = max(low, wanted[index], placed[before] + gap if before is not None else low)
    for after, index in zip([None, *order[::-1]], order[::-1]):
        placed[index] = min(placed[index], placed[after] - gap if after is not None else high)
    return placed


class Axes:
    def __init__(self, lines, level):
        values = [value for points in lines.values() for _, value in points] + [level]
        self.high = max(values) + 0.3
        self.low = min(max(min(values) - 0.3, self.high - MOST_SPAN), self.high - LEAST_SPAN)
        self.bits = sorted({bits for points in lines.values() for bits, _ in points})

    def x(self, bits):
        return LEFT + 20 + self.bits.index(bits) * (WIDTH - LEFT - RIGHT - 40) / max(len(self.bits) - 1, 1)

    def y(self, value):
        return TOP + (self.high - value) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)


def grid(axes, level):
    for value in steps(axes.low, axes.high):
        y = axes.y(value)
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    for bits in axes.bits:
        yield f'<text x="{axes.x(bits):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{bits}</text>'
    yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">bits of weights and activations</text>'
    y = axes.y(level)
    yield f'<line class="float" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'


def curve(axes, index, points):
    places = [(axes.x(bits), axes.y(value)) for bits, value in sorted(points)]
    first = " first" if index == 0 else ""
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    yield f'<path class="c{index}{first}" clip-path="url(#inside)" d="M{path}"/>'
    for x, y in places:
        if y <= HEIGHT - BOTTOM:
            yield f'<circle class="f{index}" cx="{x:.1f}" cy="{y:.1f}" r="{4 if index == 0 else 3}"/>'


def draw(title, lines, level):
    """`lines`: name -> (bits, percent), or nothing. The position of a line decides its colour, and the first line is the boldest.
    `level`: percent in float, a dashed line."""
    axes = Axes(lines, level)
    ends = {name: max(points)[1] for name, points in lines.items() if points}
    places = spread([axes.y(level), *map(axes.y, ends.values())], 17, TOP, HEIGHT - BOTTOM)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{escape(title)}</title>',
             style(), f'<clipPath id="inside"><rect x="{LEFT}" y="{TOP - 6}" width="{WIDTH - LEFT}" '
             f'height="{HEIGHT - TOP - BOTTOM + 6}"/></clipPath>',
             f'<rect class="back" width="{WIDTH}" height="{HEIGHT}" rx="6"/><text x="{LEFT}" y="26">{escape(title)}, %</text>',
             *grid(axes, level)]
    for index, points in reversed(list(enumerate(lines.values()))):
        parts += curve(axes, index, points) if points else []
    parts.append(f'<text x="{WIDTH - RIGHT + 10}" y="{places[0] + 4:.1f}">float</text>')
    for name, y in zip(ends, places[1:]):
        index = list(lines).index(name)
        parts.append(f'<text class="f{index}" x="{WIDTH - RIGHT + 10}" y="{y + 4:.1f}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
