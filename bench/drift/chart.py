"""An SVG of differences over depth, both logarithmic, that stands alone in the reader's colours, light or dark."""
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 380, 70, 30, 44, 46
COLOURS = [("#0b6bcb", "#6cb6ff"), ("#c2410c", "#ff9d66"), ("#5f9e0a", "#a3d65c"), ("#8b3fc7", "#cf9bff"), ("#b0256b", "#ff8cc6")]
ZERO = 1.5  # position of 0, in decades below the least value


def style():
    light = "".join(f".c{i}{{stroke:{c[0]}}}.f{i}{{fill:{c[0]}}}" for i, c in enumerate(COLOURS))
    dark = "".join(f".c{i}{{stroke:{c[1]}}}.f{i}{{fill:{c[1]}}}" for i, c in enumerate(COLOURS))
    return ("<style>text{font:13px system-ui,sans-serif;fill:#24292f}.back{fill:#fff}.grid{stroke:#d8dee4}"
            "path{fill:none;stroke-width:2}" + light + "@media(prefers-color-scheme:dark){text{fill:#d6dde5}.back{fill:#0d1117}"
            ".grid{stroke:#30363d}" + dark + "}</style>")


def drawn(found):
    """`found` has differences by depth, by name."""
    depths = sorted({depth for points in found.values() for depth in points})
    positive = [value for points in found.values() for value in points.values() if value > 0] or [1e-6]
    low, high = math.floor(math.log10(min(positive))) - ZERO, math.ceil(math.log10(max(positive)))

    def x(depth):
        return LEFT + math.log(depth / depths[0]) / max(math.log(depths[-1] / depths[0]), 1e-9) * (WIDTH - LEFT - RIGHT)

    def y(value):
        at = math.log10(value) if value > 0 else low
        return TOP + (high - at) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
             style(), f'<rect class="back" width="{WIDTH}" height="{HEIGHT}"/>',
             f'<text x="{LEFT}" y="24">mean squared difference from the engine, relative</text>']
    ticks = [(10.0 ** e, f"1e{e}") for e in range(math.ceil(low + ZERO), high + 1, max(1, (high - math.ceil(low)) // 6))] + [(0, "0")]
    for value, label in ticks:
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y(value):.1f}" x2="{WIDTH - RIGHT}" y2="{y(value):.1f}"/>'
                     f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{label}</text>')
    for depth in depths:
        parts.append(f'<text x="{x(depth):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{depth}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">linear layers</text>')
    exact = [name for name, points in found.items() if not any(points.values())]
    for at, (name, points) in enumerate(found.items()):
        path = " ".join(f"{'L' if i else 'M'}{x(depth):.1f} {y(value):.1f}" for i, (depth, value) in enumerate(sorted(points.items())))
        parts.append(f'<path class="c{at}" d="{path}"/>')
        if name not in exact:
            parts.append(f'<text class="f{at}" x="{WIDTH - RIGHT}" y="{y(points[max(points)]) - 8:.1f}" text-anchor="end">{name}</text>')
    if exact:
        parts.append(f'<text x="{WIDTH - RIGHT}" y="{y(0) - 8:.1f}" text-anchor="end">{", ".join(exact)}: 0</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
