"""A system without POSIX, simulated: the modules and names that Windows lacks are gone."""

from __future__ import annotations

import asyncio
import importlib
import os
import pkgutil
import signal
import socket
import sys

import filelock  # noqa: F401 - it keeps the locks of this system

#: Modules of the standard library that Windows does not have.
_MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
#: Names that Windows lacks, by the module that has them elsewhere.
_NAMES: dict[object, str] = {
    os: """
        O_CLOEXEC O_DIRECTORY O_DSYNC O_NOATIME O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_SYNC O_TMPFILE chown
        copy_file_range ctermid fchdir fchmod fchown fdatasync fork forkpty getegid geteuid getgid getgroups
        getloadavg getpgid getpriority getresuid getsid getuid initgroups killpg lchown lockf memfd_create mkfifo
        mknod nice openpty pathconf pidfd_open posix_fadvise posix_fallocate posix_spawn pread preadv pwrite pwritev
        register_at_fork sched_getaffinity sched_setaffinity sendfile setegid seteuid setgid setpgid setpriority
        setregid setsid setuid statvfs sync sysconf tcgetpgrp uname wait wait3 wait4 waitid WNOHANG
    """,
    signal: """
        SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGUSR1 SIGUSR2 SIGWINCH alarm pause pthread_kill
        pthread_sigmask setitimer sigwait
    """,
    socket: "AF_UNIX MSG_DONTWAIT MSG_NOSIGNAL SO_REUSEPORT recv_fds send_fds",
    asyncio: "open_unix_connection start_unix_server",
}


#: Modules for frameworks that are not installed here.
_FRAMEWORKS = tuple(f"transports.agents._{name}" for name in ("langchain", "openai_agents", "pydantic_ai"))


def import_all() -> list[str]:
    """Import every module of ``transports``, but for programs and those that need a framework, and return their
    names."""
    import transports

    modules = pkgutil.walk_packages(transports.__path__, "transports.")
    names = [
        module.name for module in modules if not module.name.endswith("__main__") and module.name not in _FRAMEWORKS
    ]
    for name in names:
        importlib.import_module(name)
    return names


def forget() -> None:
    """Take away what Windows lacks, for the rest of this process. What was imported already keeps what it has."""
    for name in _MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # an import of it raises ImportError
    for module, names in _NAMES.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    os.supports_dir_fd.clear()
