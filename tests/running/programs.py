"""Small programs that show what Python does for a program: ``ikp run`` must do the same.

Each prints what it sees, or ends as it does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Program:
    """A program, and how it is run."""

    text: str = ""  # of prog.py
    words: tuple[str, ...] = ("prog.py",)  # after `python`
    files: dict[str, str | bytes] = field(default_factory=dict)  # beside it
    stdin: str = ""
    redirect: str = ""  # the shell's
    environment: dict[str, str] = field(default_factory=dict)
    before: str = ""  # a program that makes more files


SIBLING = {"sibling.py": "import sys\nprint('sibling of', __name__)\nVALUE = 7\n"}
POOL = """\
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
import sibling
class Pair:
    def __init__(self, x): self.x = x
def work(x):
    import __main__
    return Pair(x + sibling.VALUE), __name__ == "__main__", __main__.__spec__ is None
if __name__ == "__main__":
    context = multiprocessing.get_context({how!r})
    with ProcessPoolExecutor(1, context) as pool:
        for pair, *facts in pool.map(work, [1, 2]):
            print(pair.x, isinstance(pair, Pair), *facts, flush=True)
    process = context.Process(target=sys.exit, args=("over",))
    process.start(); process.join(); print(process.exitcode)
"""
INTERRUPT = "os.kill(os.getpid(), signal.SIGINT); time.sleep(9)"
RAISED = "def f(): raise ValueError('no')\n"
APP = """\
import click
@click.command()
@click.option("--times", type=int, default=1)
@click.argument("name")
def hello(times: int, name: str) -> None:
    'Greets.'
    click.echo(f"hello {name} " * times)
    raise click.ClickException("that is all")
hello()
"""

PROGRAMS = {
    # What annotations and `from __future__` are: torch.library.custom_op and others read them.
    "annotations": Program(
        "def f(x: int, *, y: list[str] | None = None) -> str: ...\nx: int = 1\n"
        "print(f.__annotations__, __annotations__)\n"
    ),
    "dataclass": Program(
        "import dataclasses, typing\n@dataclasses.dataclass\nclass A:\n    x: int = 1\n"
        "    y: typing.ClassVar[str] = ''\nprint(dataclasses.fields(A)[0].type, A(2))\n"
    ),
    "future": Program(
        "'doc'\nfrom __future__ import annotations\ndef f(x: no_such) -> 1: ...\n"
        "print(f.__annotations__, __doc__)\n"
    ),
    "click": Program(APP, ("prog.py", "--times", "2", "you")),
    "click-usage": Program(APP, ("prog.py", "--nope")),
    "click-help": Program(APP, ("prog.py", "--help")),
    # What can't be run.
    "syntax": Program("print(1)\ndef f(:\n    pass\n"),
    "indent": Program("if True:\n\tx = 1\n        y = 2\n"),
    "null-byte": Program("print(1)\nx = '\0'\n"),
    "cookie": Program(files={"prog.py": "# coding: latin-1\nprint('\xe4')\n".encode("latin-1")}),
    "bad-cookie": Program("# coding: nonsense\nprint(1)\n"),
    "not-utf-8": Program(files={"prog.py": b"print(1)\nx = '\xff'\n"}),
    "bom": Program(files={"prog.py": b"\xef\xbb\xbfprint('bom')\n"}),
    "empty": Program(),
    "no-module": Program("import no_such_module\n"),
    "broken-import": Program("import broken\n", files={"broken.py": "x = (\n"}),
    "no-script": Program(words=("nothing.py", "--x")),
    "no-main": Program(words=("folder",), files={"folder/x.py": ""}),
    "not-a-zip": Program(words=("x.pyz",), files={"x.pyz": b"PK\x03\x04nonsense"}),
    "pyc": Program(
        before="import py_compile\n"
        "open('a.py', 'w').write('print(__file__)')\npy_compile.compile('a.py', 'a.pyc')\n",
        words=("a.pyc",),
    ),
    # Ways to name a program.
    "module": Program(
        words=("-m", "pack", "-q", "--force"),
        files={
            "pack/__init__.py": "print('init', __name__)\n",
            "pack/__main__.py": "from . import part\nimport sys\n"
            "print(sys.argv, __package__, __spec__.name, __file__, sys.path[0], part)\n",
            "pack/part.py": "",
        },
    ),
    "module-of": Program(
        words=("-m", "pack.part"), files={"pack/part.py": "import sys\nprint(sys.argv)\n1 / 0\n"}
    ),
    "no-such-module": Program(words=("-m", "nosuch")),
    "no-such-part": Program(words=("-m", "pack.nosuch"), files={"pack/__init__.py": ""}),
    "no-main-module": Program(words=("-m", "pack"), files={"pack/__init__.py": ""}),
    "broken-package": Program(words=("-m", "pack.x"), files={"pack/__init__.py": "1 / 0\n"}),
    "module-timeit": Program(words=("-m", "timeit", "-n1", "-r1", "-s", "1/0")),
    "module-pdb": Program("x = 1\n", ("-m", "pdb", "prog.py"), stdin="next\np x\nquit\n"),
    "zip": Program(
        before="import zipfile\nwith zipfile.ZipFile('x.pyz', 'w') as z:\n"
        "    z.writestr('__main__.py', 'import sys, a; print(sys.argv, __file__, __name__); 1/0')\n"
        "    z.writestr('a.py', 'print(__name__)')\n",
        words=("x.pyz", "arg"),
    ),
    "folder": Program(
        words=("folder", "arg"),
        files={"folder/__main__.py": "import sys, a\nprint(sys.argv, __file__, sys.path[0])\n1/0\n"}
        | {"folder/a.py": "print(__name__)\n"},
    ),
    "stdin-program": Program(
        words=("-", "arg"), stdin="import sys\nprint(sys.argv, __name__, sys.path[0])\n1/0\n"
    ),
    "code": Program(words=("-c", "import sys; print(sys.argv, __name__); 1/0", "-m", "--force")),
    "code-syntax": Program(words=("-c", "print(1")),
    "elsewhere": Program(
        words=("./a/../a/b.py",),
        files={"a/b.py": "import sys, c\nprint(__file__, sys.argv, sys.path[0])\n1/0\n"}
        | {"a/c.py": "print(__file__)\n"},
    ),
    "link": Program(
        before="import os\nos.mkdir('real')\n"
        "open('real/b.py', 'w').write('import c')\n"
        "open('real/c.py', 'w').write('print(__file__)')\n"
        "os.symlink('real/b.py', 'b.py')\n",
        words=("b.py",),
    ),
    "arguments": Program("import sys\nprint(ascii(sys.argv))\n", ("prog.py", "-\udcff", "", "a b")),
    # What a program finds.
    "main": Program(
        "import sys, __main__\nprint(__main__.__dict__.keys(), __loader__.__class__, __spec__)\n"
        "print(__builtins__, __file__, __package__, __cached__ if '__cached__' in dir() else 0)\n"
        "print(sys.modules['__main__'] is __main__, sys.argv, sys.orig_argv, sys.path, sys.flags)\n"
    ),
    "surroundings": Program(
        "import os, signal, subprocess, sys, warnings\nprint(sorted(os.environ.items()))\n"
        "print(warnings.filters, sys.warnoptions, sys.getrecursionlimit(), os.listdir('.'))\n"
        "print([signal.getsignal(s) for s in (2, 13, 15)], sys.excepthook is sys.__excepthook__)\n"
        "print(os.listdir('/proc/self/fd'), open('/proc/self/cmdline').read(), flush=True)\n"
        "subprocess.run([sys.executable, '-c', 'import os, sys; print(os.environ, sys.path)'])\n"
    ),
    "own-sitecustomize": Program(
        "import sys\nprint(sys.modules['sitecustomize'].__file__, sys.path)\n",
        files={
            "site/sitecustomize.py": "import sys\nif 'run' not in sys.orig_argv: print('here')\n"
        },
        environment={"PYTHONPATH": "site:"},
    ),
    "broken-sitecustomize": Program(
        files={"site/sitecustomize.py": "import sys\n'run' in sys.orig_argv or 1/0\n"},
        environment={"PYTHONPATH": "site"},
    ),
    "no-python-path": Program("import sys\nprint(sys.path)\n", environment={"PYTHONPATH": ""}),
    "locale": Program(
        "import locale, sys\nprint(locale.getlocale(), locale.getencoding())\n"
        "print([(s.encoding, s.errors) for s in (sys.stdin, sys.stdout, sys.stderr)], '\xe4')\n",
        environment={"LC_ALL": "C", "PYTHONIOENCODING": "latin-1"},
    ),
    "source": Program(
        "import inspect, linecache, pickle, typing\nclass A:\n    x: 'A'\ndef f():\n    return 1\n"
        "print(inspect.getsource(f), inspect.getfile(A), typing.get_type_hints(A))\n"
        "print(type(pickle.loads(pickle.dumps(A()))) is A, inspect.getmodule(f).__name__)\n"
    ),
    "stack": Program(
        "import inspect, sys, traceback, warnings\ntraceback.print_stack()\n"
        "print(len(inspect.stack()), sys._getframe().f_back)\nwarnings.warn('here', stacklevel=5)\n"
    ),
    "recursion": Program(
        "def f(n):\n    global depth\n    depth = n\n    f(n + 1)\n"
        "try: f(0)\nexcept RecursionError as e: print(depth, e)\nf(0)\n"
    ),
    "runpy": Program(
        "import runpy, sys\nrunpy.run_path('other.py', run_name='__main__')\nprint(__name__)\n"
        "import other\n",
        files={"other.py": "import sys\nprint(__name__, sys.argv, sys.modules['__main__'])\n"},
    ),
    "shadows": Program(
        "import random, click, ikp, platform, json\nprint(random.X, click.X, ikp.X, platform.X)\n",
        files={f"{n}.py": f"X = __file__\nprint({n!r})" for n in ("random", "click", "platform")}
        | {"ikp.py": "X = 'own'\n", "json.py": "X = 1\n"},
    ),
    "named-like-stdlib": Program(words=("types.py",), files={"types.py": "print(__file__)\n"}),
    "chdir": Program(
        "import os, sys\nos.mkdir('x'); os.chdir('x')\nprint(__file__, os.path.exists(__file__))\n"
        "import sibling\n",
        files=SIBLING,
    ),
    # Ends.
    **{
        f"exit-{value}": Program(f"import sys\nprint('x')\nsys.exit({value})\n")
        for value in ("", "7", "259", "-1", "2**70", "'text'", "(1, 2)", "None", "3.5", "True")
    },
    "quit": Program("quit(3)\n"),
    "os-exit": Program("import os\nprint('lost')\nos._exit(7)\n"),
    "abort": Program("import os\nprint('lost')\nos.abort()\n"),
    "kill": Program("import os\nos.kill(os.getpid(), 9)\n"),
    "terminate": Program("import os\nprint('lost')\nos.kill(os.getpid(), 15)\n"),
    "terminate-handled": Program(
        "import os, signal, sys, time\nsignal.signal(15, lambda *a: sys.exit(f'told {a[0]}'))\n"
        "os.kill(os.getpid(), 15); time.sleep(9)\n"
    ),
    "interrupt": Program(f"import os, signal, time\nprint('x')\ndef f(): {INTERRUPT}\nf()\n"),
    "interrupt-module": Program(
        words=("-m", "prog"), text=f"import os, signal, time\n{INTERRUPT}\n"
    ),
    "interrupt-caught": Program(
        f"import os, signal, time\ntry: {INTERRUPT}\nexcept KeyboardInterrupt: print('caught')\n"
    ),
    "interrupt-asyncio": Program(
        "import asyncio, os, signal\nasync def main():\n    try:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n        await asyncio.sleep(9)\n"
        "    finally: print('cleaned')\nasyncio.run(main())\n"
    ),
    "interrupt-shutdown": Program(
        "import os, signal, threading, time\ndef late():\n    time.sleep(0.2)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(0.2)\n"
        "threading.Thread(target=late).start()\n"
    ),
    "segfault": Program(
        "import faulthandler, os\nfaulthandler.enable()\nos.kill(os.getpid(), 11)\n"
    ),
    "alarm": Program("import signal, time\nsignal.setitimer(0, 0.05)\ntime.sleep(9)\n"),
    "limit": Program(
        "import signal, time\ndef over(*_): raise TimeoutError('limit')\n"
        "signal.signal(signal.SIGALRM, over)\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\n"
        "try: time.sleep(9)\nexcept OSError as error: print(repr(error))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.05)\ntime.sleep(9)\n"
    ),
    "replaced": Program(
        "import os, sys\nprint(sys.argv, flush=True)\n"
        "if len(sys.argv) < 2: os.execv(sys.executable, [sys.executable, __file__, 'again'])\n"
    ),
    # Errors.
    "chain": Program(
        f"{RAISED}try:\n    f()\nexcept ValueError as e:\n    e.add_note('a note')\n"
        "    raise KeyError('x') from e\n"
    ),
    "context": Program(f"{RAISED}try:\n    f()\nfinally:\n    None.x\n"),
    "group": Program(
        f"{RAISED}try: f()\nexcept ValueError as e: raise ExceptionGroup('two', [e, KeyError(1)])\n"
    ),
    "module-error": Program(RAISED + "f()\n", ("-m", "prog")),
    "excepthook": Program(
        f"import sys\nsys.excepthook = lambda *a: print('hook', a[1])\n{RAISED}f()"
    ),
    # Functions that start programs: what ikp puts in their place looks like them.
    "exec-fails": Program("import os\nos.execv('/no/such', ['it'])\n"),
    "exec-functions": Program(
        "import inspect, os, pickle\nfor f in os.execv, os.execve, os.posix_spawn:\n"
        "    print(f.__name__, f.__qualname__, f.__doc__, inspect.signature(f))\n"
        "    print(pickle.loads(pickle.dumps(f)) is f)\n"
        "try: os.execvp('no-such-program', ['it'])\nexcept FileNotFoundError as e: print(e)\n"
        "os.posix_spawn('/no/such', ['it'], {})\n"
    ),
    # A console prints an error itself where the program has no hook of its own.
    "excepthook-default": Program(
        "import code, sys\nprint(sys.excepthook is sys.__excepthook__)\n"
        "class Console(code.InteractiveInterpreter):\n"
        "    def write(self, data): print('console', data)\n"
        "Console().runsource('1 / 0')\n"
    ),
    "excepthook-fails": Program(f"import sys\nsys.excepthook = lambda *a: 1 / 0\n{RAISED}f()\n"),
    "excepthook-exits": Program(
        f"import sys\nsys.excepthook = lambda *a: sys.exit(9)\n{RAISED}f()"
    ),
    "stderr-replaced": Program(f"import io, sys\nsys.stderr = io.StringIO()\n{RAISED}f()\n"),
    "thread-error": Program(
        f"import sys, threading\n{RAISED}threading.Thread(target=f, name='t').start()\n"
        "threading.Thread(target=sys.exit, args=('silent',)).start()\n"
    ),
    "unraisable": Program(
        "class A:\n    def __del__(self): raise ValueError('in del')\nA()\nlast = A()\n"
    ),
    "atexit-error": Program("import atexit, sys\natexit.register(lambda: 1 / 0)\nsys.exit(4)\n"),
    "str-fails": Program(
        "class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E\n"
    ),
    # What comes after the program's last line.
    "thread-after-main": Program(
        "import sys, threading, time\ndef late():\n    threading.main_thread().join()\n"
        "    import sibling\n    print(sys.argv, sys.path[0], sibling.VALUE, __name__)\n"
        "threading.Thread(target=late).start()\nprint('main is over')\n",
        ("prog.py", "x"),
        SIBLING,
    ),
    "atexit": Program(
        "import atexit, sys\n@atexit.register\ndef first(): print('last')\n"
        "@atexit.register\ndef late():\n    import sibling, __main__\n"
        "    print(sys.argv, sys.path[0], __main__.__file__, __name__)\n",
        files=SIBLING,
    ),
    "atexit-exits": Program("import atexit, sys\natexit.register(sys.exit, 3)\nprint('x')\n"),
    "daemon": Program(
        "import threading as t, time\nt.Thread(target=time.sleep, args=(9,), daemon=True).start()"
    ),
    "generator": Program(
        "def g():\n    try: yield\n    finally: print('closed')\nx = g(); next(x)\n"
        "class A:\n    def __del__(self): print('deleted', __name__)\na = A()\n"
    ),
    "executor": Program(
        "import concurrent.futures as c, time\npool = c.ThreadPoolExecutor()\n"
        "pool.submit(lambda: (time.sleep(0.1), print('late')))\nprint('main')\n"
    ),
    "asyncio": Program(
        "import asyncio\nasync def main():\n    asyncio.create_task(asyncio.sleep(9), name='t')\n"
        "    await asyncio.gather(*map(asyncio.sleep, [0, 0]))\n    raise OSError('end')\n"
        "asyncio.run(main())\n"
    ),
    "temporary": Program(
        "import tempfile, warnings\nwarnings.simplefilter('always')\n"
        "tempfile._RandomNameSequence.__next__ = lambda self: 'x'\n"
        "t = tempfile.TemporaryDirectory(dir='.')\nopen('prog.py')\nprint('x')\n"
    ),
    # Other processes.
    "fork": Program(
        "import atexit, os, sys\natexit.register(print, 'bye')\nprint('once', flush=True)\n"
        "if pid := os.fork(): print(os.waitpid(pid, 0)[1] >> 8)\nelse: sys.exit(5)\n"
    ),
    "fork-error": Program(f"import os\n{RAISED}if os.fork(): os.wait()\nelse: f()\n"),
    **{
        how: Program(POOL.format(how=how), files=SIBLING) for how in ("fork", "spawn", "forkserver")
    },
    "spawn-module": Program(POOL.format(how="spawn"), ("-m", "prog"), SIBLING),
    "spawn-unguarded": Program(
        "import multiprocessing as m\nm.set_start_method('spawn')\nprint(__name__, flush=True)\n"
        "p = m.Process(target=print, args=('x',))\np.start(); p.join(); print(p.exitcode)\n"
    ),
    "subprocess": Program(
        "import subprocess, sys\nprint(subprocess.run([sys.executable, '-m', 'sibling'])."
        "returncode, subprocess.getoutput('echo $PYTHONPATH$IKP_RUN'))\n",
        files=SIBLING,
    ),
    # Streams.
    "mocked-open": Program(
        "import subprocess\nfrom unittest import mock\n"
        "with mock.patch('builtins.open', mock.mock_open()) as opened:\n"
        "    print(subprocess.run(['sh', '-c', 'echo x'], capture_output=True).stdout)\n"
        "print(opened.mock_calls)\n"
    ),
    "input": Program("print(input('? '), __import__('sys').stdin.read())\n", stdin="a\nb\nc"),
    "end-of-input": Program("input()\n"),
    "closed-stdin": Program("import sys\nprint(sys.stdin)\ninput()\n", redirect="<&-"),
    "closed-stdout": Program(
        "import sys\nprint(1)\nprint(sys.stdout, file=sys.stderr)", redirect=">&-"
    ),
    "closed-stderr": Program(
        "import os, sys\nprint(sys.stderr, os.open('x', 64 | 1))\n1/0\n", redirect="2>&-"
    ),
    "all-closed": Program("import sys\nsys.exit(3)\n", redirect="<&- >&- 2>&-"),
    "full": Program("print('x' * 9)\n", redirect=">/dev/full"),
    "no-reader": Program("print('x' * 99999)\n", redirect="| true"),
    "closes-stdout": Program("import sys\nprint('x')\nsys.stdout.close()\nsys.stderr.close()\n"),
    "order": Program(
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\nprint('out')\n", redirect="2>&1"
    ),
}

WITH_TRITON = (
    "limit annotations exit-7 interrupt interrupt-asyncio group context excepthook "
    "excepthook-default thread-error thread-after-main atexit fork spawn closed-stderr recursion"
)
"""Programs that run once more with an import that ikp waits for: then more of it is in them."""
PROGRAMS |= {
    f"{name}-triton": replace(
        PROGRAMS[name],
        text=f"import triton\n{PROGRAMS[name].text}",
        files={**PROGRAMS[name].files, "triton.py": ""},
    )
    for name in WITH_TRITON.split()
}
