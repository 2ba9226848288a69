"""fairhorizon serve: lists over HTTP, under limits, with a dashboard."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli.database_option import VARIABLE
from fairhorizon.cli.service_extra import needs_service
from fairhorizon.errors import ConfigError
from fairhorizon.vocabulary import ListValue

if TYPE_CHECKING:
    from fairhorizon.service.settings import ServiceSettings

RunFolder = Annotated[
    Path | None,
    typer.Option("--run", metavar="RUN", help="Folder of a model of the whole log (fit --all)."),
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        envvar=VARIABLE,
        help="postgresql://USER@HOST/NAME, sqlite:///FILE or the path of a SQLite file.",
        show_default="service.db in the run folder",
    ),
]
DatabaseFile = Annotated[
    Path | None,
    typer.Option(
        "--database-file",
        metavar="FILE",
        envvar=f"{VARIABLE}_FILE",
        help="File that holds the address of the database, for one with a password.",
    ),
]
Host = Annotated[
    str, typer.Option(help="Address to listen at. Others than this machine's need keys.")
]
Port = Annotated[int, typer.Option(min=1, max=65535, help="Port to listen at.")]
Workers = Annotated[int, typer.Option(min=1, max=64, help="Processes that serve.")]
Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="LIMIT",
        help="Keep this limit, such as 'popular<=0.4', if it is not kept already. Repeatable.",
        show_default="those of the run, in a new database",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Take limits and the table [service] from this file, such as fairhorizon.toml.",
    ),
]
Value = Annotated[
    ListValue | None,
    typer.Option(
        "--value",
        help="What lists make as much of as they can. ndcg: what users like now. long: every "
        "user's values count by what a like of theirs is worth for later; for a model that was "
        "fitted with --answers.",
        show_default="that of the table [service], else ndcg",
    ),
]
Certificate = Annotated[
    Path | None, typer.Option("--tls-certificate", metavar="FILE", help="Certificate, for HTTPS.")
]
CertificateKey = Annotated[
    Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key.")
]


def serve(
    run: RunFolder = None,
    database: DatabaseUrl = None,
    database_file: DatabaseFile = None,
    host: Host = "127.0.0.1",
    port: Port = 8088,
    workers: Workers = 1,
    limit: Limits = None,
    config: Config = None,
    value: Value = None,
    tls_certificate: Certificate = None,
    tls_key: CertificateKey = None,
) -> None:
    """Serve lists over HTTP under limits on all showings, with a dashboard at /.

    Lists are recorded before they are answered. Exposure budgets are kept in
    the database, across restarts and any number of workers and machines.
    """
    with needs_service("serve"):
        from fairhorizon.service.serving import Address
        from fairhorizon.service.serving import serve as serve_until_stopped
    if (tls_certificate is None) != (tls_key is None):
        raise typer.BadParameter("a certificate and its key go together", param_hint="--tls-key")
    settings, limits = _configured(config)
    if value is not None:
        settings = settings.model_copy(update={"value": value})
    serve_until_stopped(
        _url(database, database_file, run),
        settings,
        run=run,
        limits=tuple(limit or limits),
        address=Address(host, port, tls_certificate, tls_key),
        workers=workers,
        say=lambda line: typer.echo(line, err=True),
    )


def _url(database: str | None, file: Path | None, run: Path | None) -> str:
    if database is not None:
        return database
    if file is not None:
        return file.read_text(encoding="utf-8").strip()
    if run is None:
        raise ConfigError("serve: there is nothing to serve (give --run RUN, or --database URL)")
    return str(run / "service.db")


def _configured(file: Path | None) -> "tuple[ServiceSettings, tuple[str, ...]]":
    from fairhorizon.service.settings import ServiceSettings
    from fairhorizon.settings import SettingsError, changed

    if file is None:
        return ServiceSettings(), ()
    from fairhorizon.studies.config_file import read_config

    content = read_config(file)
    try:
        return changed(ServiceSettings(), content.service), content.limits
    except SettingsError as error:
        raise ConfigError(f"{file} [service]: {error}") from None
