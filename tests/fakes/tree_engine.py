"""A program that behaves as badly as engines do, without a model: ready marks in files, workers, deafness, crashes.

tree_engine.py FOLDER [--ignore-term] [--worker] [--deaf-worker] [--exit CODE] [--print N] [--late-worker]

Its pid is in FOLDER/pid, its workers' in FOLDER/worker (a session of their own, parent gone). `--deaf-worker` ignores
SIGTERM, `--scrubbed-worker` has no marker in its environment, `--print N` writes N numbered lines.
"""

import os
import signal
import sys
import time


def worker(folder: str, deaf: bool, scrubbed: bool) -> None:
    """A grandchild in a session of its own whose parent has gone. It is deaf from its first moment on: whoever ends this
    engine may find it between fork and exec."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN if deaf else signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            code = (
                "import os,sys,time\n"
                "p=sys.argv[1]; open(p+'.tmp','w').write(str(os.getpid())); os.rename(p+'.tmp',p)\n"
                "time.sleep(120)"
            )
            env = {} if scrubbed else dict(os.environ)
            os.execve(sys.executable, ["VLLM::EngineCor", "-S", "-c", code, os.path.join(folder, "worker")], env)
        os._exit(0)
    os.wait()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def main() -> int:
    folder, flags = sys.argv[1], sys.argv[2:]
    if "--ignore-term" in flags:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "--late-worker" in flags:
        signal.signal(signal.SIGTERM, lambda *_: worker(folder, True, False))
    if any(f.endswith("-worker") and f != "--late-worker" for f in flags) or "--worker" in flags:
        worker(folder, "--deaf-worker" in flags, "--scrubbed-worker" in flags)
        while not os.path.exists(os.path.join(folder, "worker")):
            time.sleep(0.005)
    if "--print" in flags:
        for n in range(int(flags[flags.index("--print") + 1])):
            os.write(1, b"line %06d\n" % n)
    sys.stdout.write("loading 10 %\rloading 100 %\r\nready\n")
    sys.stdout.flush()
    with open(os.path.join(folder, "pid.tmp"), "w") as f:
        f.write(f"{os.getpid()} {os.getsid(0)} {os.getcwd()}")
    os.rename(os.path.join(folder, "pid.tmp"), os.path.join(folder, "pid"))
    if "--exit" in flags:
        return int(flags[flags.index("--exit") + 1])
    end = time.monotonic() + 120
    while time.monotonic() < end:
        time.sleep(0.2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
