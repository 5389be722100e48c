# SPDX-License-Identifier: Apache-2.0
"""What each combination of options of `mxtree rebase` does."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from packaging.version import Version

from mxtree.errors import ExitCode, FatalError
from mxtree.project import find_project
from mxtree.rebase import bases
from mxtree.rebase.finish import finish, undo
from mxtree.rebase.forecast import applies, forecast
from mxtree.rebase.report import print_forecasts, print_last_good, print_rebase
from mxtree.rebase.screen import conflict_screen, exec_screen
from mxtree.rebase.session import Request, Session, canonical_series
from mxtree.rebase.story import Report, Story, save, tell
from mxtree.rebase.work import Work
from mxtree.upstreams import Source, ensure_imported, load_upstreams

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mxtree.project import Project
    from mxtree.rebase.model import Rebase
    from mxtree.upstreams import Imported, Upstream


@dataclass(frozen=True)
class Options:
    """The command line; see `mxtree rebase --help`."""

    upstream: str
    onto: str | None = None
    from_version: str | None = None
    source: str = "index"
    exec_command: str | None = None
    backport: bool = False
    keep_pin: bool = False
    dry_run: bool = False
    all_known: bool = False
    find_last_good: bool = False
    verbs: Mapping[str, bool] = field(default_factory=dict)
    reason: str = ""
    as_json: bool = False


def run(options: Options) -> int:
    """Do what the options ask for; return the exit status."""
    project = find_project()
    upstream = load_upstreams(project).get(options.upstream)
    session = Session(project, upstream.name)
    verb = _verb(options)
    if verb == "abort":
        session.abort()
        print(f"{upstream.name}: the rebase is given up; series and pins are as they were")
    elif verb == "undo":
        print(f"taken back: {undo(session)}")
    elif verb == "finish":
        written = finish(session)
        build = f"mxtree build --{upstream.name} {written.name}"
        print(f"written: {written}\nnext: mxtree lint, {build}, mxtree test")
    elif verb == "continue":
        return _tell(session, session.resume(), options)
    elif verb == "skip":
        return _tell(session, session.skip(options.reason), options)
    elif options.dry_run or options.find_last_good:
        return _forecast(project, upstream, options)
    else:
        return _tell(session, session.start(request(project, upstream, options)), options)
    return ExitCode.OK


def _verb(options: Options) -> str | None:
    chosen = [name for name, is_given in options.verbs.items() if is_given]
    starts = bool(options.onto or options.all_known or options.find_last_good)
    if len(chosen) + starts == 1:
        return chosen[0] if chosen else None
    raise FatalError(
        "name one of --onto, --continue, --skip, --abort, --finish, --undo"
        if not chosen
        else f"these do not go together: {', '.join('--' + name for name in chosen)}"
        + (" and --onto" if starts else ""),
        hint="mxtree rebase --help",
    )


def request(project: Project, upstream: Upstream, options: Options) -> Request:
    """Return the request of the command line, with both bases and what is between in the cache."""
    source = Source.parse(options.source)
    old = _old(project, upstream, options, source)
    new = bases.resolve(project, upstream, options.onto or "", source)
    bases.refuse_older(old, new, backport=options.backport)
    return Request(
        upstream=upstream,
        old=old,
        new=new,
        between=tuple(_between(project, upstream, old, new, source)),
        exec_command=options.exec_command,
        keep_pin=options.keep_pin or options.backport,
        history=_history(upstream, source),
    )


def _history(upstream: Upstream, source: Source) -> str | None:
    return (source.location or upstream.repository) if source.kind == "git" else None


def _old(project: Project, upstream: Upstream, options: Options, source: Source) -> Imported:
    version = options.from_version or upstream.default
    return bases.resolve(project, upstream, version, source)


def _between(
    project: Project, upstream: Upstream, old: Imported, new: Imported, source: Source
) -> list[Imported]:
    """Return the pinned releases between two of them, oldest first; they date what upstream did."""
    if source.kind != "index" or new.version not in upstream.releases:
        return []
    low, high = sorted([Version(old.version), Version(new.version)])
    versions = sorted((v for v in upstream.releases if low < Version(v) < high), key=Version)
    return [ensure_imported(project, upstream, version, source) for version in versions]


def _forecast(project: Project, upstream: Upstream, options: Options) -> int:
    source = Source.parse(options.source)
    old = _old(project, upstream, options, source)
    forecasts: list[Story] = []
    if options.all_known or options.find_last_good:
        for version in bases.newer_first(upstream):
            if Version(version) <= Version(old.version) and not options.backport:
                continue
            new = bases.resolve(project, upstream, version, source)
            if new.commit == old.commit:
                continue
            between = _between(project, upstream, old, new, source)
            history = _history(upstream, source)
            wanted = Request(upstream, old, new, tuple(between), history=history)
            forecasts.append(forecast(project, wanted))
            if options.find_last_good and applies(forecasts[-1].rebase):
                break
    else:
        forecasts.append(forecast(project, request(project, upstream, options)))
    save(project, Report(kind="forecast", upstream=upstream.name, stories=tuple(forecasts)))
    print_forecasts(
        old.version,
        forecasts,
        as_json=options.as_json,
        next_steps=_next_steps(project, upstream, options, forecasts),
    )
    if options.find_last_good and not options.as_json:
        print_last_good(upstream.name, old.version, forecasts)
    return ExitCode.OK


def _next_steps(
    project: Project, upstream: Upstream, options: Options, forecasts: Sequence[Story]
) -> str:
    """Return what may follow a forecast of one release."""
    review = f"mxtree report rebase --upstream {upstream.name} (review it)"
    version = forecasts[0].rebase.new.version if forecasts else ""
    made = project.series_dir(upstream.name, version)
    if made.is_dir():
        return f"{review}; {made.relative_to(project.root)} holds a series for {version} already"
    given = [
        ("--from", options.from_version),
        ("--onto", options.onto or version),
        ("--source", options.source if options.source != "index" else None),
        ("--exec", options.exec_command),
    ]
    words = [f"{name} {shlex.quote(value)}" for name, value in given if value]
    words += ["--backport"] if options.backport else []
    words += ["--keep-pin"] if options.keep_pin else []
    return f"{review}, mxtree rebase {upstream.name} {' '.join(words)} (do it)"


def _tell(session: Session, rebase: Rebase, options: Options) -> int:
    work = Work(session.store.work)
    old = canonical_series(work.path, rebase)
    story = tell(work, rebase, old)
    save(session.project, Report(kind="rebase", upstream=rebase.upstream, stories=(story,)))
    if options.as_json and rebase.status != "done":
        print(rebase.model_dump_json())
    if rebase.status == "conflict":
        patch = old[rebase.position]
        directory = session.project.series_dir(rebase.upstream, rebase.old.version)
        raise conflict_screen(work, rebase, replace(patch, path=directory / patch.name))
    if rebase.status == "exec-failed":
        raise exec_screen(work, rebase)
    print_rebase(rebase, as_json=options.as_json)
    return ExitCode.OK
