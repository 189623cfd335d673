"""The templates, with autoescape everywhere: what a store holds is text of others, never markup."""

import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from autotuner.views import words

STATIC = "static"


@cache
def environment() -> Environment:
    """The templates of this package."""
    made = Environment(
        loader=PackageLoader("autotuner.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"kind": lambda value: type(value).__name__, "commands": commands, "when": when}
    made.tests["a_moment"] = lambda value: isinstance(value, datetime)
    made.globals |= {"kinds": words.KINDS, "static": static_url}
    return made


def render(template: str, **values: Any) -> str:
    """A page. Raises jinja2.UndefinedError for a name that was not given."""
    return environment().get_template(template).render(**values)


def compile_all() -> None:
    """Compiles every template, so that no reader waits for it."""
    for name in environment().list_templates(extensions=("html",)):
        environment().get_template(name)


def static_text(name: str) -> str:
    """A file of the static folder."""
    return (resources.files("autotuner.web") / STATIC / name).read_text()


@cache
def static_url(name: str) -> str:
    """Where the server has a file. The address changes with the content, so that browsers may keep it for good."""
    digest = hashlib.sha256((resources.files("autotuner.web") / STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?{digest}"


def commands(text: str) -> Markup:
    """A text whose `commands` are set as such."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one is left open
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def when(moment: datetime) -> Markup:
    """A moment, in UTC; the page's script writes it in the reader's zone."""
    utc = moment.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(utc.isoformat(timespec="seconds"), words.moment(utc))
