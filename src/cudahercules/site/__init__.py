"""``build_site``: the documentation as static pages, task pages included.

Pages are Markdown from ``docs/`` and, for each family, Markdown made by
:mod:`cudahercules.site.families` from its files and from committed results. markdown-it renders, pygments
colours code, jinja2 frames; the pages need no script and no other server. A link to a page or a heading
that does not exist ends the build.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudahercules.build.toolchain import install_extra
from cudahercules.errors import MachineError, UsageError
from cudahercules.site.families import family_pages

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

HERE = Path(__file__).parent
NAVIGATION: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("Start", (("quick-start", "Quick start"), ("how-it-works", "How it works"))),
    (
        "Reading results",
        (
            ("verdicts", "Reading a verdict"),
            ("debugging", "Debugging without a GPU"),
            ("measurement", "How speed is measured"),
            ("tasks/index", "Tasks"),
        ),
    ),
    ("Models and agents", (("evaluating", "Evaluating models"),)),
    ("Adding a problem", (("new-family", "Tutorial"), ("task-format", "Task format"))),
    (
        "Limits and trust",
        (
            ("threat-model", "Threat model"),
            ("not-covered", "What is not covered"),
            ("recorder", "What the recorder understands"),
            ("emulator-coverage", "What the emulator covers"),
            ("emulator-corpus", "Experts' code in the emulator"),
        ),
    ),
)
"""Sections, each with its pages (name without suffix, title); the first page is the site's index."""
MARK = "site of cudahercules\n"
"""Content of ``.hercules-site``, by which a later build knows that a directory is its own."""


@dataclass
class Page:
    """One page on its way from Markdown to HTML. ``name`` is its path without suffix."""

    name: str
    title: str
    markdown: str
    html: str = ""
    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)


def build_site(out: Path, docs: Path, notify: Callable[[str], None] = lambda _stage: None) -> int:
    """Write the site to ``out`` (new, empty or an earlier site) and return its number of pages.

    ``docs`` holds the Markdown. Raises UsageError for a directory that is not ours to write to, for a
    missing page and for a link that leads nowhere; MachineError where the libraries are missing or the
    disk refuses."""
    missing = [name for name in ("jinja2", "markdown_it", "mdit_py_plugins") if find_spec(name) is None]
    if missing:
        raise MachineError(f"the site needs {', '.join(missing)}: {install_extra('docs')}")
    _check(out)
    notify("reading pages")
    pages = _pages(docs)
    notify(f"rendering {len(pages)} pages")
    _render(pages)
    problems = dead_links(pages, [data.name for data in docs.glob("*.json")])
    if problems:
        raise UsageError("links that lead nowhere:\n  " + "\n  ".join(problems))
    notify("writing")
    try:
        _write(out, pages, docs)
    except OSError as error:
        raise MachineError(f"cannot write the site to {out}: {error.strerror}") from error
    return len(pages)


def _check(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file: name a directory for the site")
    if out.is_dir() and any(out.iterdir()) and not (out / ".hercules-site").is_file():
        raise UsageError(f"{out} holds other files and is left alone; name a new directory")


def _pages(docs: Path) -> list[Page]:
    generated = family_pages()
    pages = []
    for _, entries in NAVIGATION:
        for name, title in entries:
            file = docs / f"{name}.md"
            if name == "tasks/index":
                pages.append(Page(name, title, generated.pop("index")))
            elif file.is_file():
                pages.append(Page(name, title, file.read_text(encoding="utf-8")))
            else:
                raise UsageError(f"{file} is missing: the site is made from a checkout's docs/")
    return pages + [Page(f"tasks/{name}", name.replace("-", "/"), text) for name, text in generated.items()]


# --- Markdown to HTML ----------------------------------------------------------------------------


def _render(pages: list[Page]) -> None:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    template, markdown = environment.get_template("page.html"), _markdown()
    for page in pages:
        body = _relinked(markdown.render(page.markdown))
        up = "../" * page.name.count("/")
        page.html = template.render(
            title=page.title, body=body, navigation=NAVIGATION, here=page.name, up=up, index=_index()
        )
        found = _Links()
        found.feed(page.html)
        page.links, page.anchors = found.links, found.anchors


def _index() -> str:
    return NAVIGATION[0][1][0][0]


def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.anchors import anchors_plugin

    made = MarkdownIt("commonmark", {"html": False, "highlight": _highlight}).enable("table")
    made.use(anchors_plugin, min_level=2, max_level=3, permalink=False)
    made.add_render_rule("table_open", lambda *_: '<div class="scroll"><table>\n')
    made.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return made


_LANGUAGES = {
    "console": "console",
    "cpp": "cuda",
    "cuda": "cuda",
    "yaml": "yaml",
    "python": "python",
    "sh": "sh",
}


def _highlight(code: str, language: str, _attributes: str) -> str:
    """Coloured code; a block without a language, or with an unknown one, stays as it is."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    known = _LANGUAGES.get(language)
    if known is None:
        return escape(code, quote=False)
    return highlight(code, get_lexer_by_name(known), HtmlFormatter(nowrap=True))


def _relinked(html: str) -> str:
    """Links between Markdown files become links between pages."""
    return re.sub(r'href="(?![a-z]+:)([^"#]+)\.md(#[^"]*)?"', r'href="\1.html\2"', html)


# --- links ---------------------------------------------------------------------------------------


class _Links(HTMLParser):
    """Collects where a page points and where it can be pointed at."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given: dict[str, Any] = dict(attributes)
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if given.get("id"):
            self.anchors.add(given["id"])


def dead_links(pages: list[Page], files: Sequence[str] = ()) -> list[str]:
    """Links inside the site that lead nowhere, as ``page -> link``; ``files`` lie beside the pages."""
    anchors = {f"{page.name}.html": page.anchors for page in pages}
    anchors["index.html"] = anchors[f"{_index()}.html"]
    problems = []
    for page in pages:
        for link in page.links:
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link) or target in files:
                continue
            directory = posixpath.dirname(page.name)
            path = posixpath.normpath(posixpath.join(directory, target)) if target else f"{page.name}.html"
            if path not in anchors or (anchor and anchor not in anchors[path]):
                problems.append(f"{page.name} -> {link}")
    return problems


# --- files ---------------------------------------------------------------------------------------


def _write(out: Path, pages: list[Page], docs: Path) -> None:
    if out.is_dir():
        for old in out.iterdir():
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    out.mkdir(parents=True, exist_ok=True)
    (out / ".hercules-site").write_text(MARK)
    (out / "style.css").write_text((HERE / "style.css").read_text() + _code_colours())
    for data in docs.glob("*.json"):
        shutil.copy(data, out / data.name)
    for page in pages:
        file = out / f"{page.name}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page.html, encoding="utf-8")
    (out / "index.html").write_text(next(p for p in pages if p.name == _index()).html, encoding="utf-8")


def _code_colours() -> str:
    """Colours of code for light and for dark screens."""
    from pygments.formatters import HtmlFormatter

    light = HtmlFormatter(style="friendly").get_style_defs("pre")
    dark = HtmlFormatter(style="github-dark").get_style_defs("pre")
    ours = "pre { background: var(--code); }\npre .go { color: var(--quiet); }\n"
    return f"\n{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{ours}"
