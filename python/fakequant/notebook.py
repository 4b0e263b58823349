"""HTML for notebooks: models as tables, calibrations and plans as pages."""
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
    """Returns a table of the quantizers of a model, or of the operators of a float model."""
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
    """Returns a table with a row and a bar for the divergence of each layer."""
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
    """An HTML page, which notebooks show in a frame. `str` returns its text."""

    def __init__(self, text):
        self.text = text

    def __str__(self):
        return self.text

    def _repr_html_(self):
        return f'<iframe style="width:100%;height:40em;border:0" srcdoc="{escape(self.text, quote=True)}"></iframe>'

    def save(self, path):
        """Writes the page to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)


class Plan(dict):
    """The result of `auto_quantize`, a dict."""

    def page(self, title="plan"):
        """Returns a page of the layers: their weights, their bits, and the cost of each format."""
        return Page(_fakequant.plan_html(self, title))

    def _repr_html_(self):
        return self.page()._repr_html_()


class Sensitivity(dict):
    """The result of `sensitivity`, a dict."""

    def _repr_html_(self):
        return sensitivity_html(self)
