import subprocess
import sys
import warnings

import click
import pytest
from click.testing import CliRunner

from ikp.cli import main
from ikp.cli.main import COMMANDS, cli
from ikp.errors import ExportError, IkpWarning
from ikp.version import __version__
from tests.analysis.example import trace

FILE = "a trace"
HEAVY = ("torch", "triton", "perfetto", "google.protobuf", "pandas", "rich", "stevedore")


def run(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "ikp.cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


@pytest.fixture
def failing(monkeypatch):
    """Make ``ikp stats`` raise an ikp error."""

    @click.command
    def command():
        raise ExportError("the disk is full.\nFree some space.")

    monkeypatch.setattr("ikp.cli._stats.command", command)


def test_help_says_what_it_is_and_what_to_do_first():
    text = run("--help").stdout
    assert "what happens inside a GPU kernel" in text
    for first in ("ikp demo", "ikp stats ikp-demo.pftrace", "ikp view ikp-demo.pftrace"):
        assert first in text
    listed = [line.split()[0] for line in text.partition("Commands:\n")[2].splitlines()]
    assert listed == list(COMMANDS)


def test_each_command_has_help():
    for command in COMMANDS:
        done = CliRunner().invoke(cli, [command, "--help"], prog_name="ikp")
        assert done.exit_code == 0
        assert f"Usage: ikp {command}" in done.stdout


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from ikp.cli.main import cli\n"
        "try: cli(['--help'])\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_no_help_shows_the_marks_of_its_source():
    shown = {name: CliRunner().invoke(cli, [name, "--help"]).output for name in main.COMMANDS}
    assert [name for name, text in shown.items() if "\\b" in text or "Usage" not in text] == []
    assert "\n    ikp run train.py --steps 10\n    ikp run --detail ops" in shown["run"]


def test_version():
    assert run("--version").stdout == f"ikp {__version__}\n"


def test_wrong_usage_exits_with_2():
    done = run("statistics")
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such command" in done.stderr


def test_an_error_of_ours_is_one_message_and_exit_code_1(failing):
    result = CliRunner().invoke(cli, ["stats"])
    assert result.exit_code == 1
    assert result.stderr == "ikp: error: the disk is full.\nFree some space.\n"
    assert result.stdout == ""


def test_a_warning_of_ours_is_one_line_that_acts_on_nothing(monkeypatch):
    @click.command
    def command():
        warnings.warn("\x1b[2Jlost.", IkpWarning, stacklevel=1)
        warnings.warn("not ours", UserWarning, stacklevel=1)

    monkeypatch.setattr("ikp.cli._stats.command", command)
    with warnings.catch_warnings(record=True) as others:
        warnings.simplefilter("always")
        shown = CliRunner().invoke(cli, ["stats"]).stderr
    assert shown == "ikp: warning: \\x1b[2Jlost.\n"
    assert [str(one.message) for one in others] == ["not ours"]


def test_an_error_shows_control_characters_and_keeps_lines():
    error = ExportError("no \x1b[31mfile.\nFind it.")
    assert str(error) == "no \\x1b[31mfile.\nFind it."
    assert error.args == ("no \x1b[31mfile.\nFind it.",)


def test_an_endless_name_leaves_the_message_readable():
    text = str(ExportError(f"no region matches {'x' * 1_000_000!r}; there are: 'load'."))
    assert len(text) < 5000
    assert text.startswith("no region matches 'xxx") and text.endswith("there are: 'load'.")
    assert "[... 996,0" in text


def test_python_m_ikp_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "ikp", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"ikp {__version__}\n"


def test_ikp_traceback_lets_the_error_through(failing, monkeypatch):
    monkeypatch.setenv("IKP_TRACEBACK", "1")
    assert isinstance(CliRunner().invoke(cli, ["stats"]).exception, ExportError)


def test_the_process_shows_no_traceback_unless_asked(tmp_path):
    missing = str(tmp_path / "none.pftrace")
    plain = run("stats", missing)
    assert plain.returncode == 1
    assert plain.stderr.startswith("ikp: error: no such file")
    assert "Traceback" not in plain.stderr
    traced = run("stats", missing, env={"IKP_TRACEBACK": "1"})
    assert traced.returncode == 1
    assert "Traceback" in traced.stderr and "ExportError" in traced.stderr


@pytest.mark.parametrize("words", ["--help", "plugins"])
def test_a_full_disk_is_told_in_a_line(words):
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        ran = subprocess.run(
            [sys.executable, "-m", "ikp.cli.main", words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ran.returncode == 1
    told = "ikp: error: the output can't be written: No space left on device."
    assert told in ran.stderr.splitlines() and "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    "words",
    [["--help"], ["stats", FILE], ["stats", FILE, FILE], ["explain", FILE], ["diff", FILE, FILE]],
)
@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_command_ends_as_it_would_if_its_stdout_were_open(words, closed, tmp_path):
    """A service may start it without any: Python has no sys.stdout then."""
    made = str(tmp_path / "x.pftrace")
    trace([(0, 0, 0, 100), (0, 1, 100, 400)]).save(made)
    words = [made if each == FILE else each for each in words]
    command = [sys.executable, "-m", "ikp.cli.main", *words]
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh"]
    ran = subprocess.run([*shell, *command], capture_output=True, text=True, check=False)
    assert ran.returncode == run(*words).returncode == 0
    assert "Traceback" not in ran.stderr


def test_what_takes_more_memory_than_there_is_is_told_in_a_line(monkeypatch):
    @click.command
    def command():
        raise MemoryError

    monkeypatch.setattr("ikp.cli._join.command", command)
    done = CliRunner().invoke(cli, ["join"])
    assert done.exit_code == 1
    assert done.stderr.startswith("ikp: error: there is not enough memory. ")


def test_the_entry_point_is_the_one_that_is_installed():
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="ikp")
    assert script.load() is main.main


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["stts", "x.pftrace"], "Did you mean stats?"),
        (["explian", "x.pftrace"], "Did you mean explain?"),
        (["Diff", "a", "b"], "Did you mean diff?"),
        (["x.pftrace"], "ikp stats x.pftrace, or ikp explain x.pftrace"),
        (["train.py"], "ikp run train.py"),
        (["zzzz"], "ikp --help lists all."),
        (["stats", "--formt", "json", "x.pftrace"], "--format"),  # quotes differ by click's version
        (["run", "--detial", "ops", "x.py"], "--detail"),
    ],
)
def test_what_is_misspelt_is_told_with_what_it_may_be_meant_for(words, meant):
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2 and meant in done.stderr
