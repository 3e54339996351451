"""Building blocks of an HTML page. Text is escaped here, so callers pass plain strings; `Html` is what is done."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template


class Html(str):
    """Text that is markup already."""


Text = str | Html


def safe(text: Text) -> Html:
    """The text as markup."""
    return text if isinstance(text, Html) else Html(html.escape(text))


def joined(parts: Iterable[Text], between: str = "\n") -> Html:
    """Several pieces as one."""
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


def table(caption: Text, head: Sequence[Text], rows: Iterable[Sequence[Text]], key: str) -> Html:
    """A table in a box of its own that scrolls sideways; the first cell of a row is its name."""
    top = tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in head)))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    made = tag("table", tag("caption", tag("span", caption)), top, tag("tbody", Html("\n"), joined(body)), class_=key)
    return tag("div", made, class_="scroll", tabindex="0")


def figure(path: Path, alt: str, caption: Text = "") -> Html:
    """A PNG file inside the page."""
    content = path.read_bytes()
    width = int.from_bytes(content[16:20], "big")  # of the picture's header, so that nothing jumps while loading
    height = int.from_bytes(content[20:24], "big")
    data = base64.b64encode(content).decode()
    picture = Html(f'<img src="data:image/png;base64,{data}" alt="{html.escape(alt)}" width="{width}" height="{height}">')
    return tag("figure", picture, *([tag("figcaption", caption)] if caption else []))


def is_png(path: Path) -> bool:
    """Whether a file can be read and looks like a PNG picture."""
    try:
        return path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    except OSError:
        return False


def gallery(figures: Iterable[Html]) -> Html:
    """Figures side by side as far as there is room."""
    return tag("div", *figures, class_="gallery")


def details(summary: Text, *content: Text) -> Html:
    """A block that opens on request."""
    return tag("details", tag("summary", summary), *content)


def code(text: str) -> Html:
    """Text as it is."""
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
    return template.substitute(parts)
