"""The command line's frame: exit codes, the one error boundary, --debug, and the commands found in their folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import align.cli
from align.cli.main import main

COMMAND = '''
from align.errors import MissingFileError, NotAlignedError, UserCodeError


def {name}_command(what: str) -> int:
    """Do what a test asks for."""
    if what == "missing":
        raise MissingFileError("weights.pth", "checkpoint")
    if what == "differs":
        raise NotAlignedError("3 of 9 layers differ")
    if what == "user":
        try:
            1 / 0
        except ZeroDivisionError as error:
            raise UserCodeError("the factory net:build", error) from error
    if what == "interrupt":
        raise KeyboardInterrupt
    if what == "bug":
        raise ZeroDivisionError("ours")
    return int(what)
'''


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A command that exists for the length of a test, found like any other."""
    name = "madeup"
    (tmp_path / f"{name}.py").write_text(COMMAND.format(name=name), encoding="utf-8")
    monkeypatch.setattr(align.cli, "__path__", [*align.cli.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, f"align.cli.{name}", raising=False)
    return name


@pytest.mark.parametrize("code", [0, 1, 2])
def test_what_a_command_returns_is_the_exit_code(command: str, code: int) -> None:
    assert main([command, str(code)]) == code


@pytest.mark.parametrize(("what", "code"), [("missing", 2), ("differs", 1), ("user", 2)])
def test_an_error_of_the_user_ends_in_one_message_without_traceback(
    command: str, what: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, what]) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("align: ")
    assert "Traceback" not in output.err


def test_the_message_names_the_thing_and_gives_a_hint(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([command, "missing"])
    assert capsys.readouterr().err == (
        "align: checkpoint not found: weights.pth\n"
        "Hint: check the path; relative paths start at the current folder\n"
    )  # fmt: skip


@pytest.mark.parametrize("arguments", [["--debug", "madeup", "user"], ["madeup", "user", "--debug"]])
def test_debug_anywhere_on_the_line_keeps_the_traceback_down_to_the_users_code(
    command: str, arguments: list[str]
) -> None:
    assert command in arguments
    with pytest.raises(align.errors.UserCodeError) as caught:
        main(arguments)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_fault_of_our_own_is_never_dressed_up_as_the_users(command: str) -> None:
    with pytest.raises(ZeroDivisionError, match="ours"):
        main([command, "bug"])


def test_an_interrupt_is_said_in_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "interrupt"]) == 130
    assert capsys.readouterr().err == "align: interrupted\n"


STOPPED = """
import os, signal, sys
import align.cli.main as program
def main():
    try:
        os.kill(os.getpid(), signal.Signals[sys.argv[1]])
    finally:  # and once more, into the cleaning up
        os.kill(os.getpid(), signal.Signals[sys.argv[1]])
program.main = main
program.run()
"""


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated"), ("SIGHUP", 129, "terminated")],
)
def test_a_signal_to_end_is_said_in_one_line_wherever_it_arrives(name: str, code: int, said: str) -> None:
    usual = "default_int_handler" if name == "SIGINT" else "SIG_DFL"  # whatever the tests were started with
    program = f"import signal; signal.signal(signal.{name}, signal.{usual})\n{STOPPED}"
    ended = subprocess.run([sys.executable, "-c", program, name], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (code, f"align: {said}\n")


def test_a_hangup_that_is_to_be_ignored_is_ignored() -> None:
    code = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n{STOPPED}"
    assert subprocess.run([sys.executable, "-c", code, "SIGHUP"], check=False).returncode == 0


@pytest.mark.parametrize("arguments", [["nonsense"], ["plugins", "--nonsense"], ["madeup"], ["madeup", "0", "1"]])
def test_a_wrong_command_line_is_could_not_run(
    command: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert f"align {command}" in capsys.readouterr().err or command not in arguments


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    output = capsys.readouterr()
    assert "Usage: align" in output.out + output.err


def test_the_installed_command_runs_in_a_shell(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "align.cli.main", "plugins", "--json"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert not list(tmp_path.iterdir())


def test_a_fault_of_our_own_or_of_the_terminal_is_never_the_code_of_not_aligned():
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "align.cli.main", "plugins"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert ended.stderr.startswith("align: standard output: No space left on device\nHint: check the path")


def test_a_character_that_the_terminal_lacks_does_not_stop_the_output():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "align.cli.main", "plugins"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0
    assert "safetensors" in ended.stdout


def test_an_unusable_run_folder_is_refused_before_any_work(tmp_path, capsys):
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 1, "loss": 2.5}\n', encoding="utf-8")
    assert main(["loss", str(log), str(log), "--run", str(log)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "is not a folder" in captured.err


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (["convert", "a.pth", "b.ckpt", "--key", "encoder", "--key", "decoder"], "--key"),
        (["loss", "a.log", "--metric=loss", "--metric", "mlm_loss"], "--metric"),
        (["diff", "--map", "one.toml", "a.pth", "b.ckpt", "--map=two.toml"], "--map"),
        (
            ["forward", "m:a", "p:b", "--reference-checkpoint", "1.pth", "--reference-checkpoint", "2.pth"],
            "--reference",
        ),
    ],
)
def test_an_option_of_one_value_is_not_given_two(
    line: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 2
    assert f"{name}" in capsys.readouterr().err.partition(" takes one value, but 2 were given: ")[0]


def test_a_value_given_twice_and_options_of_several_values_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["convert", "no.pth", "b.ckpt", "--key", "a", "--key=a", "--layer", "x=linear", "--layer", "y=linear"])
        == 2
    )
    assert main(["convert", "no.pth", "b.ckpt", "--key", "a", "--", "--key", "b"]) == 2
    assert "is given 2" not in capsys.readouterr().err


def test_what_stands_before_a_command_is_answered_without_typer_and_numpy() -> None:
    for words in (["--version"], ["--help"], []):
        code = f"import sys; from align.cli.main import main; main({words}); print('MODULES', *sys.modules)"
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert not {"typer", "rich", "numpy", "align.cli.checkpoints"} & {*ended.stdout.split("MODULES")[1].split()}


def test_a_command_imports_the_module_of_no_other_command() -> None:
    code = "import sys; from align.cli.main import main; main(['loss', '--help']); print('MODULES', *sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {*ended.stdout.split("MODULES")[1].split()}
    assert "align.cli.checkpoints" not in loaded


def test_the_package_is_a_program() -> None:
    ended = subprocess.run([sys.executable, "-m", "align", "--version"], capture_output=True, text=True, check=True)
    assert ended.stdout == f"align {align.__version__}\n"


COMPLETED = """
eval "$(cat)"
show() { COMP_WORDS=(align "$@"); COMP_CWORD=$#; COMPREPLY=(); _align align "${@: -1}"; echo "${COMPREPLY[@]}"; }
show insp
show inspect --tr
show --comp
show inspect weights
"""


def test_bash_completes_commands_and_options_and_leaves_files_to_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--completion", "bash"]) == 0
    script = capsys.readouterr().out
    ended = subprocess.run(["bash", "-c", COMPLETED], input=script, capture_output=True, text=True, check=True)
    assert ended.stdout.split("\n") == ["inspect", "--trust-pickle", "--completion", "", ""]


def test_other_shells_get_a_line_for_each_command_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--completion", "zsh"]) == 0
    assert "'--trust-pickle:Let torch run the code in the file: only for files you trust'" in capsys.readouterr().out
    assert main(["--completion", "fish"]) == 0
    assert "__fish_seen_subcommand_from inspect' -l trust-pickle -d 'Let torch" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "said"), [(["csh"], "csh is not known"), ([], "names no shell")])
def test_another_shell_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--completion", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_help_of_a_command_has_no_word_of_python_for_a_flag_and_ends_with_an_example(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["forward", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "<bool>" not in shown
    assert "Example: align forward" in shown
    panels = {"Arguments", "Options", "Inputs", "Models and weights", "Results"}
    assert {*re.findall("^╭─ (.*?) ─", shown, re.MULTILINE)} == panels


def test_an_error_is_json_where_json_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "no.pth", "--json"]) == 2
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert (document["schema"], document["code"], document["kind"]) == ("mindalign.error/2", 2, "MissingFileError")
    assert document["message"] == "checkpoint not found: no.pth"
    assert told.err.startswith("align: checkpoint not found: no.pth\nHint: ")
    jsonschema.validate(document, schema_of("error", capsys))


def schema_of(kind: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["schema", kind]) == 0
    schema: dict[str, Any] = json.loads(capsys.readouterr().out)
    return schema


def test_schemas_are_printed_and_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert schema_of("forward", capsys)["title"].startswith("mindalign.forward/")
    assert main(["schema"]) == 0
    assert {"forward", "error", "loss"} <= {*capsys.readouterr().out.split()}
    assert main(["schema", "forwards"]) == 2
    assert "there is no kind of document forwards" in capsys.readouterr().err


def test_quiet_prints_the_first_part_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("".join(f'{{"step": {step}, "loss": {1 / step}}}\n' for step in range(1, 50)), encoding="utf-8")
    assert main(["loss", str(log), str(log)]) == 0
    whole = capsys.readouterr().out
    assert main(["loss", str(log), str(log), "-q"]) == 0
    first = capsys.readouterr().out
    assert whole.startswith(first.rstrip())
    assert 0 < len(first) < len(whole) / 2
    assert main(["loss", str(log), str(log)]) == 0
    assert capsys.readouterr().out == whole


WARNED = """
import sys, warnings
import align.cli.main as program
def main():
    warnings.warn_explicit("of a framework", UserWarning, "x.py", 1, module="mindspore.ops")
    warnings.warn_explicit("of the user", UserWarning, "y.py", 1, module="train")
program.main = main
program.run()
"""


@pytest.mark.parametrize(("words", "shown"), [([], [False, True]), (["-v"], [True, True])])
def test_warnings_of_frameworks_are_shown_if_asked_for(words: list[str], shown: list[bool]) -> None:
    ended = subprocess.run([sys.executable, "-c", WARNED, *words], capture_output=True, text=True, check=True)
    assert [text in ended.stderr for text in ("of a framework", "of the user")] == shown
