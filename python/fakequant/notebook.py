"""What notebooks show: models as tables, calibrations and plans as pages in a frame."""
from html import escape

from . import _fakequant


def _table(head, rows, foot=""):
    cells = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in head)
    lines = "".join("<tr>" + "".join(f"<td style='text-align:left'>{escape(str(cell))}</td>" for cell in row) + "</tr>"
                    for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>" + (f"<p>{escape(foot)}</p>" if foot else "")


def _range(amax):
    if amax is None:
        return "none"
    low, high = amax
    return f"{high:.4g}" if low == high else f"{low:.4g} .. {high:.4g}"


def _quantizer(row):
    name = row["name"] + (f" (also {', '.join(row['aliases'])})" if row["aliases"] else "")
    return name, row["description"], _range(row["amax"]), "on" if row["enabled"] else "off"


def model_html(model):
    """Of a quantized model its quantizers, of another one its operators."""
    if model.quantized:
        rows = model.quantizers()
        return _table(("quantizer", "format", "amax", ""), map(_quantizer, rows),
                      f"{len(rows)} quantizers, {sum(row['enabled'] for row in rows)} enabled")
    found = model.summary()
    rows = [(row["path"], row["op"], "x".join(map(str, row["output"])), f"{row['parameters']:,}", f"{row['multiply_adds']:,}")
            for row in found["rows"]]
    return _table(("path", "operator", "output", "parameters", "multiply-adds"), rows,
                  f"{found['parameters']:,} parameters, {found['multiply_adds']:,} multiply-adds")


def sensitivity_html(report):
    """A line for each layer with a bar as long as its divergence."""
    most = max((layer["divergence"] or 0 for layer in report["layers"]), default=0)
    rows = []
    for layer in report["layers"]:
        width = 200 * (layer["divergence"] or 0) / most if most else 0
        cells = "".join(f"<td style='text-align:left'>{escape(str(layer[key]))}</td>" for key in ("layer", "type", "format"))
        rows.append(f"<tr>{cells}<td><svg width=200 height=10><rect width={width:.1f} height=10 fill='#4878a8'/></svg></td>"
                    f"<td>{layer['divergence'] or 0:.4g}</td></tr>")
    return ("<table><thead><tr><th>layer</th><th>type</th><th>format</th><th></th><th>divergence</th></tr></thead><tbody>"
            + "".join(rows) + "</tbody></table>")


class Page:
    """An HTML page that a notebook shows in a frame; `str` of it is the text."""

    def __init__(self, text):
        self.text = text

    def __str__(self):
        return self.text

    def _repr_html_(self):
        return f'<iframe style="width:100%;height:40em;border:0" srcdoc="{escape(self.text, quote=True)}"></iframe>'

    def save(self, path):
        """Writes the page."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)


class Plan(dict):
    """What auto_quantize chose, as the command writes it."""

    def page(self, title="plan"):
        """The layers as wide as their weights and as high as their bits, and what each format would cost each."""
        return Page(_fakequant.plan_html(self, title))

    def _repr_html_(self):
        return self.page()._repr_html_()


class Sensitivity(dict):
    """What each layer's quantizers alone cost, as the command writes it."""

    def _repr_html_(self):
        return sensitivity_html(self)
