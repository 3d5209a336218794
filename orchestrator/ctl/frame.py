"""What every verb shares: which cluster, which form; options that may stand before or after the verb."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import click

from orchestrator.ctl.admin_client import DEFAULT_URL, AdminClient
from orchestrator.ctl.printing import FORMS, Printer
from orchestrator.near_miss import near_miss

F = TypeVar("F", bound=Callable[..., Any])


class Frame:
    """The common options as they were given; the client and the printer that follow from them."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.form = "table"
        self.heads = True
        self.no_colour = False
        self.debug = False
        self.quiet = False

    def client(self) -> AdminClient:
        """A client for ``--url``, else LLMGW_URL, else the usual port of this machine."""
        return AdminClient(self.url or os.environ.get("LLMGW_URL") or DEFAULT_URL)

    def printer(self) -> Printer:
        """A printer for the asked form."""
        return Printer(self.form, heads=self.heads, no_colour=self.no_colour)

    def say(self, text: str) -> None:
        """What was done, for a person; nothing with ``-q``."""
        if not self.quiet:
            click.echo(text, err=True)


def _setter(name: str, value_of: Callable[[Any], Any] = lambda value: value) -> Callable[..., None]:
    def callback(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value not in (None, False):
            setattr(context.ensure_object(Frame), name, value_of(value))

    return callback


def common_options(function: F) -> F:
    """The options that every verb and ``ctl`` itself take."""
    options = [
        click.option(
            "--url",
            expose_value=False,
            callback=_setter("url"),
            help=f"The admin API (LLMGW_URL, else {DEFAULT_URL}).",
        ),
        click.option(
            "-o",
            "--output",
            type=click.Choice(FORMS),
            expose_value=False,
            callback=_setter("form"),
            help="Form of the result.",
        ),
        click.option(
            "--json",
            is_flag=True,
            expose_value=False,
            callback=_setter("form", lambda _: "json"),
            help="Same as -o json.",
        ),
        click.option(
            "--no-headers",
            is_flag=True,
            expose_value=False,
            callback=_setter("heads", lambda _: False),
            help="Rows only.",
        ),
        click.option(
            "--no-color",
            is_flag=True,
            expose_value=False,
            callback=_setter("no_colour"),
            help="Also by NO_COLOR.",
        ),
        click.option(
            "-q",
            "--quiet",
            is_flag=True,
            expose_value=False,
            callback=_setter("quiet"),
            help="Results only.",
        ),
        click.option(
            "--debug",
            is_flag=True,
            expose_value=False,
            callback=_setter("debug"),
            help="A traceback with an error.",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


class VerbGroup(click.Group):
    """A group that names the verb that was probably meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a suggestion instead of a list."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            self._refuse(ctx, args[0])
        return super().resolve_command(ctx, args)

    def _refuse(self, ctx: click.Context, written: str) -> NoReturn:
        meant = near_miss(written, self.commands)
        hint = f"; did you mean {meant}?" if meant else ""
        raise click.UsageError(f"no verb {written!r}{hint}", ctx)


def verb(group: click.Group, name: str, **settings: Any) -> Callable[[F], click.Command]:
    """A verb of ``group`` that takes the common options and gets the frame as its first argument."""

    def decorate(function: F) -> click.Command:
        return group.command(name, **settings)(common_options(click.pass_obj(function)))

    return decorate
