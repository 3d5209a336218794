"""``llmgw ctl``: runs a verb and turns every way out into its exit code."""

from __future__ import annotations

import os
import sys
import traceback

import click

import orchestrator.ctl.changing_verbs  # noqa: F401 - adds its verbs to ctl
from orchestrator.ctl.errors import INTERRUPTED, USAGE, BadUsage, CtlError
from orchestrator.ctl.frame import Frame
from orchestrator.ctl.reading_verbs import ctl


def run(argv: list[str] | None = None) -> int:
    """The exit code: 0 done, 1 refused, 2 usage, 3 unreachable, 4 ran out, 5 failed, 130 interrupted."""
    frame = Frame()
    try:
        ctl.main(args=argv, prog_name="llmgw ctl", standalone_mode=False, obj=frame)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (click.Abort, KeyboardInterrupt):
        print("interrupted: what was ordered goes on; llmgw ctl status shows it", file=sys.stderr)
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return USAGE
    except click.UsageError as error:
        path = "llmgw ctl" if error.ctx is None else error.ctx.command_path
        frame.printer().error(BadUsage(error.format_message(), "", f"{path} --help"))
        return USAGE
    except click.ClickException as error:
        frame.printer().error(BadUsage(error.format_message()))
        return USAGE
    except CtlError as error:
        if frame.debug:
            traceback.print_exc()
        frame.printer().error(error)
        return error.exit_code
    except BrokenPipeError:
        # Whoever read the output has seen enough; the interpreter must not complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    return 0


def main(argv: list[str] | None = None) -> int:
    """Entry of ``llmgw ctl``."""
    return run(argv)


if __name__ == "__main__":
    sys.exit(main())
