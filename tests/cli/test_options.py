import click
from click.testing import CliRunner

from fourge.cli.options import MODEL, MODEL_OR_SHAPE, SHAPES, ModelName, device_option
from fourge.model.shapes import SHAPES as KNOWN


def offered(kind: ModelName, text: str) -> list[tuple[str, str]]:
    command = click.Command("it", params=[click.Argument(["model"], type=kind)])
    items = kind.shell_complete(click.Context(command), command.params[0], text)
    return [(item.value, item.type) for item in items]


def test_a_model_completes_to_names_and_to_files() -> None:
    assert offered(MODEL, "") == [("smollm2-135m", "plain"), ("", "file")]
    assert offered(MODEL, "./q") == [("./q", "file")]
    assert offered(MODEL_OR_SHAPE, "qwen3-1") == [
        ("qwen3-1.7b", "plain"), ("qwen3-14b", "plain"), ("qwen3-1", "file")
    ]  # fmt: skip


def test_the_shapes_are_those_that_exist() -> None:
    assert set(SHAPES) == set(KNOWN)


def test_a_shared_option_is_passed_on() -> None:
    @click.command()
    @device_option
    def where(device: str) -> None:
        click.echo(device)

    assert CliRunner().invoke(where, []).output == "auto\n"
    assert CliRunner().invoke(where, ["--device", "cpu"]).output == "cpu\n"
    assert CliRunner().invoke(where, ["--device", "tpu"]).exit_code == 2
