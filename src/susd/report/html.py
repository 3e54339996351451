"""Building blocks of an HTML page. Text is escaped here, so callers pass plain strings; `Html` is markup."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template

from susd.errors import UserError
from susd.experiments.job import MAX_PIXELS
from susd.runs.untrusted import read_bytes


class Html(str):
    """Text that is markup already."""


Text = str | Html


def safe(text: Text) -> Html:
    """The text as markup."""
    return text if isinstance(text, Html) else Html(html.escape(text))


def joined(parts: Iterable[Text], between: str = "\n") -> Html:
    """Several pieces of text as one."""
    return Html(between.join(safe(part) for part in parts))


def tag(name: str, *content: Text, **attributes: str) -> Html:
    """One element; `class_` stands for class."""
    written = "".join(f' {key.rstrip("_")}="{html.escape(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{written}>{joined(content, '')}</{name}>")


def paragraph(*content: Text, **attributes: str) -> Html:
    """A paragraph."""
    return tag("p", *content, **attributes)


def bullets(items: Iterable[Text]) -> Html:
    """A list."""
    return tag("ul", *(tag("li", item) for item in items))


def html_table(caption: Text, head: Sequence[Text], rows: Iterable[Sequence[Text]], key: str) -> Html:
    """A table in a box that scrolls horizontally; the first cell of a row is its header."""
    top = tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in head)))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    made = tag("table", tag("caption", tag("span", caption)), top, tag("tbody", Html("\n"), joined(body)), class_=key)
    return tag("div", made, class_="scroll", tabindex="0")


def figure(path: Path, alt: str, caption: Text = "") -> Html:
    """A PNG file inside the page."""
    content = _compressed(path)
    width = int.from_bytes(
        content[16:20], "big"
    )  # from the header of the file, so that the page does not shift while it loads
    height = int.from_bytes(content[20:24], "big")
    data = base64.b64encode(content).decode()
    image = Html(f'<img src="data:image/png;base64,{data}" alt="{html.escape(alt)}" width="{width}" height="{height}">')
    return tag("figure", image, *([tag("figcaption", caption)] if caption else []))


def _compressed(path: Path) -> bytes:
    """The image with at most 128 colours, which is a third of the size and looks the same for a chart."""
    from PIL import Image

    content, small = path.read_bytes(), io.BytesIO()
    try:
        Image.open(path, formats=["PNG"]).convert("RGB").quantize(128).save(small, format="PNG")
    except Exception:  # a damaged file, for which PIL raises many types; the browser may show a part of it
        return content
    return min(content, small.getvalue(), key=len)


def is_png(path: Path) -> bool:
    """Whether a file can be read, starts like a PNG file, and has a size that can be shown."""
    try:
        content = read_bytes(path)
    except UserError:
        return False
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
    return content.startswith(b"\x89PNG\r\n\x1a\n") and 0 < width * height <= MAX_PIXELS


def gallery(figures: Iterable[Html]) -> Html:
    """Figures in rows, as many as fit the width."""
    return tag("div", *figures, class_="gallery")


def details(summary: Text, *content: Text) -> Html:
    """A block that opens on request."""
    return tag("details", tag("summary", summary), *content)


def code(text: str) -> Html:
    """Preformatted text."""
    return tag("pre", tag("code", text))


def anchor(title: str) -> str:
    """The id of a section."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def page(title: str, lead: Text, sections: Mapping[str, Sequence[Text]]) -> str:
    """The whole page: a title, a table of contents, and every section that has content."""
    shown = {name: content for name, content in sections.items() if content}
    links = (tag("li", tag("a", name, href=f"#{anchor(name)}")) for name in shown)
    body = (tag("section", tag("h2", name), joined(content), id=anchor(name)) for name, content in shown.items())
    template = Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    parts = {"title": safe(title), "lead": safe(lead), "contents": tag("ol", *links), "body": joined(body, "\n\n")}
    parts["script"] = Html(Path(__file__).with_name("table.js").read_text(encoding="utf-8"))
    return template.substitute(parts)
