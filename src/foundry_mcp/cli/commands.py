"""The command tree, derived from the operations: no command is written here that an operation could be."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from foundry_mcp import __version__
from foundry_mcp.cli.terminal import TERMINAL, watch
from foundry_mcp.core.contracts import CONTRACT_NAMES
from foundry_mcp.core.errors import FoundryError, missing, nearest, validation
from foundry_mcp.core.flags import Flags
from foundry_mcp.core.settings import Settings, find_workspace, load_settings
from foundry_mcp.operations import REGISTRY
from foundry_mcp.operations.declaration import Operation, Session, Surroundings
from foundry_mcp.runtime import Outcome, Request, Runtime

__all__ = ["run"]

PROGRAM = "foundry-cli"
COMPLETE_VARIABLE = "_FOUNDRY_CLI_COMPLETE"
EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return the exit code."""
    root = Branch(
        name=PROGRAM,
        path=(),
        params=_common(),
        help="Specs, tasks, research and knowledge for coding agents.",
    )
    root.params.append(click.Option(["--version"], is_flag=True, help="Show the version and exit."))
    try:
        code = root.main(
            list(arguments), prog_name=PROGRAM, standalone_mode=False, complete_var=COMPLETE_VARIABLE
        )
    except click.UsageError as error:
        return _refuse(_usage(error), arguments, context=error.ctx)
    except FoundryError as error:  # settings that cannot be understood
        return _refuse(error, arguments)
    except (click.Abort, KeyboardInterrupt):
        return 130
    return code if isinstance(code, int) else EXIT_OK


class Branch(click.Group):
    """The commands whose spelling begins with `path`; each is built only when it is asked for."""

    def __init__(self, *, path: tuple[str, ...], **settings: Any) -> None:
        super().__init__(invoke_without_command=True, **settings)
        self.path = path

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        depth = len(self.path)
        spellings = [*(tuple(declared.cli.split()) for declared in _operations()), *EXTRAS]
        return sorted(
            {words[depth] for words in spellings if words[:depth] == self.path and len(words) > depth}
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        path = (*self.path, cmd_name)
        if path in EXTRAS:
            return EXTRAS[path]()
        below = [declared for declared in _operations() if tuple(declared.cli.split()[: len(path)]) == path]
        if not below:
            return None
        if len(below) == 1 and tuple(below[0].cli.split()) == path:
            return Leaf(below[0])
        about = f"{cmd_name.capitalize()}: {', '.join(Branch(path=path).list_commands(ctx))}."
        return Branch(name=cmd_name, path=path, params=_common(), help=about)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            spelled = " ".join((*self.path, name))
            guess = nearest(name, known)
            hint = f"Did you mean '{guess[0]}'? " if guess else ""
            raise validation(
                "command",
                "enum",
                f"unknown command '{spelled}'",
                received=spelled,
                allowed=known,
                remediation=f"{hint}Use one of: {', '.join(known)}",
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        if ctx.params.get("version"):
            click.echo(f"{PROGRAM} {__version__}")
            return EXIT_OK
        if not ctx._protected_args and not ctx.args:  # noqa: SLF001 - click keeps the name of the subcommand there
            if sys.stdout.isatty():
                click.echo(ctx.get_help())
                return EXIT_OK
            raise missing("command", remediation=f"Use one of: {', '.join(self.list_commands(ctx))}")
        return super().invoke(ctx)


class Leaf(click.Command):
    """One operation as a command."""

    def __init__(self, declared: Operation) -> None:
        self.declared = declared
        example = " ".join(filter(None, (PROGRAM, declared.cli, declared.example)))
        super().__init__(
            name=declared.cli.split()[-1],
            params=[*self._parameters(), *_common()],
            help=declared.run.__doc__,
            epilog=f"Example: {example}",
        )

    def _parameters(self) -> list[click.Parameter]:
        schema = self.declared.schema
        required = schema.get("required", ())
        built: list[click.Parameter] = []
        for name, entry in schema["properties"].items():
            if name in self.declared.positional:
                built.append(
                    click.Argument(
                        [name], type=Text(entry), required=False, metavar=_spelled(name, name in required)
                    )
                )
            elif entry.get("type") == "boolean":
                dashed = name.replace("_", "-")
                built.append(
                    click.Option([f"--{dashed}/--no-{dashed}", name], default=None, help=_help(entry))
                )
            else:
                dashed = f"--{name.replace('_', '-')}"
                several = entry.get("type") == "array" and not _is_json(entry)
                built.append(
                    click.Option(
                        [dashed, name], type=Text(entry), multiple=several, default=None, help=_help(entry)
                    )
                )
        return built

    def invoke(self, ctx: click.Context) -> int:
        common = _merged(ctx)
        given = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in ctx.params.items()
            if name not in COMMON and value is not None and value != ()
        }
        if self.declared.action is not None:
            given["action"] = self.declared.action
        request = Request(
            self.declared.tool,
            given,
            Session(client=PROGRAM),
            contract=common.get("contract"),
            from_text=True,
        )
        runtime = _runtime(common, self.declared)
        timeout = common.get("timeout")
        outcome = runtime.call(request) if timeout is None else runtime.call_within(request, timeout)
        return _emit(
            outcome, wants_json=bool(common.get("json") or common.get("contract")), operation=self.declared
        )


class Text(click.ParamType[Any]):
    """Text as it was typed: the operation's own rules check it, so that every door gives the same answer."""

    name = "text"

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self.choices = [str(choice) for choice in schema.get("enum", ())]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002 - click's signature
        if _is_json(self.schema) and isinstance(value, str):
            try:
                return msgspec.json.decode(value)
            except (ValueError, RecursionError):
                name = param.human_readable_name if param else "value"
                said = f"{name} must be a JSON {self.schema['type']}"
                raise validation(name, "json", said, received=value, code="INVALID_FORMAT") from None
        return value

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:  # noqa: ARG002 - click's signature
        if self.choices:
            return f"[{'|'.join(self.choices)}]"
        return str(self.schema.get("type", "text")).upper()

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:  # noqa: ARG002 - click's signature
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only a completing shell needs it

        return [CompletionItem(choice) for choice in self.choices if choice.startswith(incomplete)]


COMMON = ("json", "contract", "workspace", "flag", "timeout")


def _common() -> list[click.Parameter]:
    """The options that every command takes, before or after its name."""
    return [
        click.Option(["--json"], is_flag=True, default=None, help="One JSON envelope, also on a terminal."),
        click.Option(["--contract"], metavar=f"[{'|'.join(CONTRACT_NAMES)}]", help="The form of the answer; implies --json."),
        click.Option(["--workspace"], metavar="FOLDER", help="Work here instead of the folder found from the current one."),
        click.Option(["--flag"], multiple=True, metavar="NAME=on|off", help="Switch a feature flag for this call."),
        click.Option(["--timeout"], type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Give up waiting after so long."),
    ]  # fmt: skip


def _merged(ctx: click.Context) -> dict[str, Any]:
    """The common options as given with the command, else before it."""
    chosen: dict[str, Any] = {}
    here: click.Context | None = ctx
    while here is not None:
        for name in COMMON:
            value = here.params.get(name)
            if value is not None and value != ():
                chosen.setdefault(name, value)
        here = here.parent
    return chosen


def _operations() -> Iterator[Operation]:
    yield from REGISTRY
    yield from TERMINAL


def _runtime(common: dict[str, Any], declared: Operation) -> Runtime:
    ours = declared.tool in TERMINAL.tools
    # A workspace is made where one stands; everything else looks for the one there is.
    chosen = common.get("workspace") or os.environ.get("FOUNDRY_WORKSPACE") or ("." if ours else None)
    workspace = find_workspace(chosen, os.environ)
    settings, flags = load_settings(workspace, os.environ, flags=common.get("flag", ()))
    # A process that makes one call has no rate to limit.
    return Runtime(Surroundings(workspace, settings, flags, TERMINAL if ours else REGISTRY), log=_log)


def _log(message: str, fields: dict[str, Any], error: BaseException | None = None) -> None:
    """Only the unexpected: a person who typed a command needs no record of having done so."""
    if error is not None:
        import logging  # noqa: PLC0415 - 15 ms that only a failure pays

        from foundry_mcp.logs import configure_logs  # noqa: PLC0415 - as above

        configure_logs("warning")
        logging.getLogger("foundry_mcp").error(message, exc_info=error, extra={"fields": fields})


def _refuse(failure: FoundryError, arguments: Sequence[str], *, context: click.Context | None = None) -> int:
    """Answer a command line that reached no operation, in the form it asked for."""
    bare = Runtime(Surroundings(Path(), Settings(), Flags(), REGISTRY), log=_log)
    words = [part for argument in arguments for part in argument.split("=", 1)]
    asked = dict(pairwise(words)).get("--contract")
    contract = asked if asked in CONTRACT_NAMES else None
    outcome = bare.refuse(Request(PROGRAM, {}, contract=contract), failure)
    wants_json = "--json" in arguments or contract is not None
    if context is not None and sys.stdout.isatty() and not wants_json:
        click.echo(context.get_usage(), err=True)
    return _emit(outcome, wants_json=wants_json)


def _emit(outcome: Outcome, *, wants_json: bool, operation: Operation | None = None) -> int:
    if wants_json or not sys.stdout.isatty():
        try:
            sys.stdout.buffer.write(outcome.body + b"\n")
            sys.stdout.buffer.flush()
        except OSError as error:
            # Point stdout away, so that nothing later tries to write the rest again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if not isinstance(error, BrokenPipeError):  # that one only means: whoever read has seen enough
                click.echo(f"{PROGRAM}: the answer could not be written: {error.strerror}", err=True)
                return EXIT_FAILED
    else:
        from foundry_mcp.cli.screen import show  # noqa: PLC0415 - rich, only when a person is looking

        show(outcome.response, operation)
    if outcome.response.success:
        return EXIT_OK
    return EXIT_FAILED if outcome.understood else EXIT_USAGE


def _usage(error: click.UsageError) -> FoundryError:
    """What click found wrong, as the same kind of answer the operations give."""
    if isinstance(error, click.NoSuchOption):
        name = error.option_name
        hints = list(error.possibilities or ())
        return validation(
            name,
            "known_parameter",
            f"unknown option '{name}'",
            received=name,
            remediation=f"Did you mean {' or '.join(hints)}?" if hints else "See --help for the options.",
        )
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return missing(error.param.human_readable_name)
    if isinstance(error, click.BadOptionUsage):
        return missing(error.option_name, remediation=error.format_message())
    if isinstance(error, click.BadParameter) and error.param is not None:
        name = error.param.human_readable_name
        return validation(name, "type", error.format_message(), code="INVALID_FORMAT")
    return validation("command", "usage", error.format_message(), remediation="See --help for the usage.")


def _is_json(schema: dict[str, Any]) -> bool:
    """Whether a parameter is typed as JSON: an object, or a list of objects."""
    return schema.get("type") == "object" or schema.get("items", {}).get("type") == "object"


def _help(entry: dict[str, Any]) -> str:
    default = entry.get("default")
    shown = f" [default: {default}]" if default not in (None, False, "", {}, []) else ""
    return f"{entry.get('description', '')}{shown}"


def _spelled(name: str, required: bool) -> str:
    return name.upper() if required else f"[{name.upper()}]"


def _watch() -> click.Command:
    def show(spec_id: str | None, **_: Any) -> int:
        if not sys.stdout.isatty():
            raise validation(
                "command", "terminal", "specs watch needs a terminal", remediation="Use specs list --json."
            )
        from foundry_mcp.cli.views import VIEWS  # noqa: PLC0415 - rich, only when a person is looking

        declared = REGISTRY.find("spec", "get" if spec_id else "list")
        common = _merged(click.get_current_context())
        runtime = _runtime(common, declared)
        arguments = {
            "action": declared.action,
            **({"spec_id": spec_id, "view": "outline"} if spec_id else {}),
        }

        def draw() -> Any:
            response = runtime.call(Request("spec", arguments, Session(client=PROGRAM))).response
            return VIEWS[declared.name](response.data) if response.success else response.error

        watch(runtime.surroundings.specs, draw)
        return EXIT_OK

    return click.Command(
        "watch",
        callback=show,
        params=[click.Argument(["spec_id"], required=False, metavar="[SPEC_ID]"), *_common()],
        help="Show the specs, or one as a tree, and redraw as files change.",
        epilog=f"Example: {PROGRAM} specs watch my-spec",
    )


def _completion() -> click.Command:
    def show(shell: str) -> NoReturn:
        from click.shell_completion import get_completion_class  # noqa: PLC0415 - only who sets it up needs it

        kind = get_completion_class(shell)
        if kind is None:
            raise validation("shell", "enum", f"unknown shell '{shell}'", received=shell)
        click.echo(kind(click.Command(PROGRAM), {}, PROGRAM, COMPLETE_VARIABLE).source())
        raise click.exceptions.Exit(EXIT_OK)

    return click.Command(
        "completion",
        callback=show,
        params=[click.Argument(["shell"], type=click.Choice(["bash", "zsh", "fish"]))],
        help="Print the completion script of a shell.",
        epilog=f'Example: eval "$({PROGRAM} completion bash)"',
    )


EXTRAS: dict[tuple[str, ...], Callable[[], click.Command]] = {
    ("completion",): _completion,
    ("specs", "watch"): _watch,
}
"""The commands that are no operations, because they answer in no envelope."""
