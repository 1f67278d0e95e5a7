"""Runs a program and makes chosen system calls fail, as commanded on standard input.

The program runs under a seccomp filter that notifies this process of each of these calls (seccomp_unotify(2)). It
answers with an errno or lets the kernel continue. Children of the program are left alone once they have called exec.
Each exchange is a line of JSON: {"arm": [{"call", "errno", "skip", "times"}]}; {"disarm": true}, answered by
{"hits", "seen"}. The first line is {"pid": n}, or {"refused": why}.
"""

import ctypes
import errno
import json
import os
import select
import signal
import struct
import sys

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBERS = {
    "x86_64": {
        "mmap": 9, "pipe2": 293, "clone": 56, "execve": 59, "kill": 62, "fcntl": 72, "ftruncate": 77, "fchmod": 91, "wait4": 61,
        "sendmsg": 46, "recvmsg": 47, "socketpair": 53, "setsockopt": 54, "setpgid": 109, "prctl": 157, "sched_setaffinity": 203,
        "waitid": 247, "epoll_ctl": 233, "openat": 257, "newfstatat": 262, "fallocate": 285, "accept4": 288, "dup3": 292,
        "memfd_create": 319, "pidfd_open": 434, "getdents64": 217, "pidfd_getfd": 438, "seccomp": 317,
        "fstat": 5, "pread64": 17,
    },
    "aarch64": {
        "mmap": 222, "pipe2": 59, "clone": 220, "execve": 221, "kill": 129, "fcntl": 25, "ftruncate": 46, "fchmod": 52, "wait4": 260,
        "sendmsg": 211, "recvmsg": 212, "socketpair": 199, "setsockopt": 208, "setpgid": 154, "prctl": 167, "sched_setaffinity": 122,
        "waitid": 95, "epoll_ctl": 21, "openat": 56, "newfstatat": 79, "fallocate": 47, "accept4": 242, "dup3": 24,
        "memfd_create": 279, "pidfd_open": 434, "getdents64": 61, "pidfd_getfd": 438, "seccomp": 277,
        "fstat": 80, "pread64": 67,
    },
}
PR_SET_NO_NEW_PRIVS = 38
SET_MODE_FILTER, FLAG_NEW_LISTENER = 1, 8
RET_ALLOW, RET_USER_NOTIF = 0x7FFF0000, 0x7FC00000
NOTIF_RECV, NOTIF_SEND, FLAG_CONTINUE = 0xC0502100, 0xC0182101, 1
CLONE_THREAD = 0x10000
NR, ARCH, ARG0, ARG4 = 0, 4, 16, 48  # in struct seccomp_data
LD, JEQ, JSET, RET = 0x20, 0x15, 0x45, 0x06

libc = ctypes.CDLL(None, use_errno=True)


def say(what):
    print(json.dumps(what), flush=True)


def program(numbers, arch, calls):
    """Makes the filter. It ignores calls for threads and memory of the Go runtime, whose failure ends the program."""
    code = [(LD, 0, 0, ARCH), (JEQ, 1, 0, arch), (RET, 0, 0, RET_ALLOW), (LD, 0, 0, NR)]
    for call in calls:
        if call == "mmap":  # anonymous: fd is -1
            code += [(JEQ, 0, 4, numbers[call]), (LD, 0, 0, ARG4), (JEQ, 1, 0, 0xFFFFFFFF), (RET, 0, 0, RET_USER_NOTIF), (RET, 0, 0, RET_ALLOW)]
        elif call == "clone":
            code += [(JEQ, 0, 4, numbers[call]), (LD, 0, 0, ARG0), (JSET, 1, 0, CLONE_THREAD), (RET, 0, 0, RET_USER_NOTIF), (RET, 0, 0, RET_ALLOW)]
        else:
            code += [(JEQ, 0, 1, numbers[call]), (RET, 0, 0, RET_USER_NOTIF)]
    code.append((RET, 0, 0, RET_ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in code), len(code)


def syscall(number, *args):
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


class Prog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def become(numbers, arch, calls, told, wait, argv):
    """The child: installs the filter, sends the number of its listener and becomes the program."""
    try:
        if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs")
        code, length = program(numbers, arch, calls)
        prog = Prog(length, code)
        listener = syscall(numbers["seccomp"], SET_MODE_FILTER, FLAG_NEW_LISTENER, ctypes.byref(prog))
        os.write(told, b"%d" % listener)
    except OSError as error:
        os.write(told, f"refused: {error}".encode())
        os._exit(3)
    os.close(told)
    os.read(wait, 1)  # until the parent has the listener as well, which execve closes here
    os.close(wait)
    os.execv(argv[0], argv)


def main():
    arch = os.uname().machine
    if arch not in NUMBERS:
        return say({"refused": f"no numbers of system calls for {arch}"})
    numbers = NUMBERS[arch]
    split = sys.argv.index("--")
    calls, argv = sys.argv[1:split], sys.argv[split + 1 :]
    names = {numbers[c]: c for c in calls}
    hear, tell = os.pipe()
    wait, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        out = os.open(os.environ["FAULTS_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for i, fd in enumerate((null, out, out)):
            os.dup2(fd, i)
        os.close(hear)
        os.close(go)
        become(numbers, AUDIT_ARCH[arch], calls, tell, wait, argv)
    os.close(tell)
    os.close(wait)
    text = os.read(hear, 200).decode()
    if not text.isdigit():
        return say({"refused": text})
    try:
        listener = syscall(numbers["pidfd_getfd"], os.pidfd_open(pid), int(text), 0)
    except OSError as error:
        os.kill(pid, signal.SIGKILL)
        return say({"refused": f"pidfd_getfd: {error}"})
    os.close(go)
    say({"pid": pid})
    serve(pid, listener, names, os.path.realpath(argv[0]))


def serve(pid, listener, names, binary):
    rules, seen, hits = json.loads(os.environ.get("FAULTS_FIRST") or "null") or [], {}, 0
    notif, resp = ctypes.create_string_buffer(80), ctypes.create_string_buffer(24)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(listener, select.POLLIN)
    while True:
        for fd, event in poll.poll():
            if fd == 0:
                line = sys.stdin.buffer.raw.read(1 << 16)
                if not line:
                    os.kill(pid, signal.SIGTERM)
                    poll.unregister(0)
                    continue
                order = json.loads(line)
                if "arm" in order:
                    rules, seen, hits = order["arm"], {}, 0
                    say({"armed": len(rules)})
                else:
                    say({"hits": hits, "seen": seen})
                    rules = []
            elif event & select.POLLIN:
                ctypes.memset(notif, 0, 80)
                if libc.ioctl(listener, ctypes.c_ulong(NOTIF_RECV), notif) != 0:
                    continue  # the call was interrupted
                ident, thread, _, number = struct.unpack_from("=QIIi", notif.raw)
                failure = 0
                if rules and is_ours(thread, binary):
                    name = names[number]
                    seen[name] = seen.get(name, 0) + 1
                    for rule in rules:
                        if rule["call"] == name and failure == 0:
                            if rule["skip"] > 0:
                                rule["skip"] -= 1
                            elif rule["times"] != 0:
                                rule["times"] -= 1
                                failure = getattr(errno, rule["errno"])
                hits += failure != 0
                struct.pack_into("=QqiI", resp, 0, ident, 0, -failure, 0 if failure else FLAG_CONTINUE)
                libc.ioctl(listener, ctypes.c_ulong(NOTIF_SEND), resp)
            else:  # all processes have ended
                _, status = os.waitpid(pid, 0)
                say({"exit": os.waitstatus_to_exitcode(status)})
                return


def is_ours(thread, binary):
    try:
        return os.readlink(f"/proc/{thread}/exe") == binary
    except OSError:
        return False


main()
