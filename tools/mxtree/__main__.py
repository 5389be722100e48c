# SPDX-License-Identifier: Apache-2.0
"""The CLI boundary: errors become one screen of text and an exit code here, and only here."""

from __future__ import annotations

import errno
import sys

from mxtree.errors import NO_PLACE_HINT, ExitCode, FatalError

#: What a disk or its owner refuses; no defect of the program, so no traceback.
_PLACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}


def main() -> int:
    """Run the command line and return its exit status."""
    from mxtree.cli import app

    try:
        status = app(standalone_mode=False, prog_name="mxtree")
    except KeyboardInterrupt:
        print("\ninterrupted; nothing is half done: run the same command again", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except FatalError as error:
        print_error(error)
        return error.code
    except OSError as error:
        if error.errno not in _PLACE:
            raise
        print_error(_no_place(error))
        return ExitCode.COULD_NOT_CHECK
    except Exception as error:  # noqa: BLE001  the one broad except: usage errors and crashes
        return _other_error(error)
    return int(status or 0)


def _no_place(error: OSError) -> FatalError:
    names = " -> ".join(str(name) for name in (error.filename, error.filename2) if name)
    refused = error.errno in {errno.EACCES, errno.EPERM}
    hint = "allow access to it, then run the same command again" if refused else NO_PLACE_HINT
    return FatalError(f"{names or 'a file'}: {error.strerror}", hint=hint)


def print_error(error: FatalError) -> None:
    """Print the error as a user reads it: what, the details, what to do next."""
    print(f"mxtree: error: {error.message}", file=sys.stderr)
    for line in error.details:
        print(f"  {line}", file=sys.stderr)
    if error.hint:
        print(f"next: {error.hint}", file=sys.stderr)


def _other_error(error: Exception) -> int:
    """Show a usage error as the parser words it; let anything else crash with its traceback."""
    show = getattr(error, "show", None)
    if show is None:
        raise error
    show()
    return int(getattr(error, "exit_code", ExitCode.USAGE))


if __name__ == "__main__":
    sys.exit(main())
