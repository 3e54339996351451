"""Hooks of mkdocs: equations become MathML, links to videos become players, shipped skills become atlases.

Pages need no script from elsewhere.
"""

import hashlib
import html
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
VIDEOS = ROOT / "results" / "videos"
SKILLS = ROOT / "src" / "susd" / "pretrained"  # run folders that come with the package
TABLE_SCRIPT = ROOT / "src" / "susd" / "report" / "table.js"  # sorts and filters tables
EXPLORER = ROOT / "src" / "susd" / "explorer"
ATLASES = re.compile(r"^<!-- atlases -->$", re.MULTILINE)
VIDEO_LINK = re.compile(r"^\[([^\]]+)\]\((?:\.\./)+results/videos/([\w-]+\.mp4)\)$", re.MULTILINE)
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)

FUNCTION = re.compile(r"(<m[io]>(?:log|min|max|exp|tanh)</m[io]>)(?!<mo)")  # TeX puts a thin space behind it


def on_files(files: Files, config: Any) -> Files:
    """Called by mkdocs with all files of the site: add the report's script, recorded videos, and atlases."""
    files.append(File.generated(config, TABLE_SCRIPT.name, abs_src_path=str(TABLE_SCRIPT)))
    for path in sorted(VIDEOS.glob("*.mp4")):
        files.append(File.generated(config, f"videos/{path.name}", abs_src_path=str(path)))
    for name, path in atlases().items():
        files.append(File.generated(config, f"atlas/{name}.html", abs_src_path=str(path)))
    return files


@cache
def atlases() -> dict[str, Path]:
    """One page for each of the skills that come with the package. They are kept between builds: recording takes minutes."""
    from susd.explorer.atlas import atlas
    from susd.training.compiler import cache_folder

    made = {}
    for folder in sorted(path.parent for path in SKILLS.glob("*/config.json")):
        digest = hashlib.sha256()
        for path in sorted(path for root in (folder, EXPLORER) for path in root.rglob("*") if path.is_file()):
            if path.suffix != ".pyc":
                digest.update(path.name.encode() + path.read_bytes())
        made[folder.name] = cache_folder() / "atlas" / f"{folder.name}-{digest.hexdigest()[:16]}.html"
        if not made[folder.name].is_file():
            made[folder.name].parent.mkdir(parents=True, exist_ok=True)
            atlas(folder, made[folder.name])
    return made


def atlas_list() -> str:
    """Links to the atlases, below the first one in a frame."""
    if not atlases():
        return ""
    configs = {name: json.loads((SKILLS / name / "config.json").read_text()) for name in atlases()}
    links = [f'<li><a href="atlas/{name}.html">{name}</a>: {c["method"]} on {c["env"]}</li>' for name, c in configs.items()]
    first = "gunner" if "gunner" in configs else next(iter(configs))
    frame = f'<iframe class="atlas" src="atlas/{first}.html" title="The skills {first}" loading="lazy"></iframe>'
    return f"{frame}\n\nThe skills that come with the package, one page each:\n\n<ul>{''.join(links)}</ul>"


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Called by mkdocs with the text of a page: a link to a video becomes a player, a marker the list of atlases."""
    root = "../" * page.url.count("/")

    def player(found: re.Match[str]) -> str:
        if not (VIDEOS / found[2]).is_file():
            raise FileNotFoundError(f"{page.file.src_path}: there is no video {VIDEOS / found[2]}")
        source = f'src="{root}videos/{found[2]}"'
        return (
            f'<video controls loop muted playsinline preload="metadata" width="100%" title="{found[1]}" {source}></video>'
        )

    return ATLASES.sub(lambda _: atlas_list(), VIDEO_LINK.sub(player, markdown))


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
