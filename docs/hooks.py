"""Hooks of mkdocs: equations become MathML, and links to videos become players. Pages need no script from elsewhere."""

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

VIDEOS = Path(__file__).parent.parent / "results" / "videos"
VIDEO_LINK = re.compile(r"^\[([^\]]+)\]\((?:\.\./)+results/videos/([\w-]+\.mp4)\)$", re.MULTILINE)
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)

FUNCTION = re.compile(r"(<m[io]>(?:log|min|max|exp|tanh)</m[io]>)(?!<mo)")  # TeX puts a thin space behind it


def on_files(files: Files, config: Any) -> Files:
    """Called by mkdocs with all files of the site: add the videos, which are recorded among the results."""
    for path in sorted(VIDEOS.glob("*.mp4")):
        files.append(File.generated(config, f"videos/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Called by mkdocs with the text of a page: a line that is a link to a video becomes a player."""
    root = "../" * page.url.count("/")

    def player(found: re.Match[str]) -> str:
        if not (VIDEOS / found[2]).is_file():
            raise FileNotFoundError(f"{page.file.src_path}: there is no video {VIDEOS / found[2]}")
        source = f'src="{root}videos/{found[2]}"'
        return (
            f'<video controls loop muted playsinline preload="metadata" width="100%" title="{found[1]}" {source}></video>'
        )

    return VIDEO_LINK.sub(player, markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Called by mkdocs with the HTML of a page: LaTeX becomes MathML, which browsers draw by themselves."""

    def mathml(found: re.Match[str]) -> str:
        display = "block" if found[2] == "[" else "inline"
        made = convert(html.unescape(found[3]).strip(), display=display)
        made = made.replace("<mi>&#x02032;</mi>", '<mo class="prime">&#x02032;</mo>')
        made = made.replace("<mo>&#x02016;</mo>", '<mo stretchy="false">&#x02016;</mo>')  # a norm
        made = FUNCTION.sub(r'\1<mspace width="0.167em" />', made)
        return f'<div class="equation">{made}</div>' if display == "block" else made

    return EQUATION.sub(mathml, content)
