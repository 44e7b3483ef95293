import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from fourge.core.errors import ConfigError, DataError
from fourge.data.batch import MASKED
from fourge.data.dataset import Dataset, open_dataset
from fourge.data.order import Mixture
from fourge.data.packed import PackedRows
from fourge.data.render import Rendered
from tests.conftest import byte_tokenizer


def write(folder: Path, name: str, count: int, *, answer: str = "answer") -> Path:
    path = folder / name
    path.write_text("".join(f"{name} {n}\t{answer} {n}\n" for n in range(count)))
    return path


def opened(*files: Path | tuple[Path, float], **changes: Any) -> Dataset:
    named = [each if isinstance(each, tuple) else (each, None) for each in files]
    settings: dict[str, Any] = {"max_tokens": 200, "seed": 1, "shuffle": True} | changes
    return open_dataset(named, settings.pop("tokenizer", byte_tokenizer()), **settings)


def test_a_batch_is_a_function_of_its_step(tmp_path: Path) -> None:
    files = write(tmp_path, "a.tsv", 7), write(tmp_path, "b.tsv", 4)
    dataset, again = opened(*files), opened(*files)
    batches = [dataset.batch(step, 3) for step in range(12)]
    for step in (11, 0, 5, 5):
        other = again.batch(step, 3)
        assert other.rows == batches[step].rows
        assert torch.equal(other.token_BT, batches[step].token_BT)
        assert torch.equal(other.target_BT, batches[step].target_BT)
    drawn = [row for batch in batches for row in batch.rows]
    everything = [(0, row) for row in range(7)] + [(1, row) for row in range(4)]
    assert Counter(drawn[:33]) == dict.fromkeys(everything, 3)
    assert [row for b in (dataset.batch(s, 6) for s in range(6)) for row in b.rows] == drawn


def test_it_knows_what_so_many_draws_take(tmp_path: Path) -> None:
    dataset = opened((write(tmp_path, "a.tsv", 7), 3.0), (write(tmp_path, "b.tsv", 4), 1.0))
    for steps in (1, 2, 5):
        drawn = {row for step in range(steps) for row in dataset.batch(step, 3).rows}
        assert dataset.drawn(3 * steps) == sorted(drawn)


def test_files_that_are_asked_alone_are_rows_as_they_are_and_questions_without_the_others(
    tmp_path: Path,
) -> None:
    tokenizer = byte_tokenizer()
    said = ["be brief", "who?", "me", "sky?", "blue"]
    roles = ["system", "user", "assistant", "user", "assistant"]
    row = {"messages": [{"role": r, "content": c} for r, c in zip(roles, said, strict=True)]}
    path = tmp_path / "later.jsonl"
    path.write_text(json.dumps(row))
    dataset = opened(path, path, alone=[1], tokenizer=tokenizer)
    whole, alone = (tokenizer.decode(dataset.asked(file, 0).token) for file in (0, 1))
    assert dataset.rendered(0, 0).token == dataset.rendered(1, 0).token
    assert all(text in whole for text in said)
    assert [text in alone for text in said] == [True, False, False, True, True]
    assert dataset.digest != opened(path, path, tokenizer=tokenizer).digest


def test_a_template_that_writes_an_answer_otherwise_after_others_cannot_be_asked_alone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "later.jsonl"
    said = [("user", "who?"), ("assistant", "me"), ("user", "sky?"), ("assistant", "blue")]
    path.write_text(json.dumps({"messages": [{"role": r, "content": c} for r, c in said]}))
    tokenizer = byte_tokenizer()
    written, later = "{{ m['content'] }}", "{{ '!' if loop.index > 2 }}"
    assert tokenizer.chat_template.count(written) == 1
    tokenizer.chat_template = tokenizer.chat_template.replace(written, written + later)
    assert opened(path, tokenizer=tokenizer).rows == (1,)
    with pytest.raises(DataError, match="jsonl:1: the last answer is written differently"):
        opened(path, tokenizer=tokenizer, alone=[0])


def test_a_batch_holds_the_rows_it_names(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    path = write(tmp_path, "a.tsv", 12)
    batch = opened(path, tokenizer=tokenizer).batch(2, 4)
    assert batch.source == tuple(f"{path}:{row + 1}" for _, row in batch.rows)
    for b, (_, row) in enumerate(batch.rows):
        target = batch.target_BT[b]
        assert tokenizer.decode(target[target != MASKED]) == f"answer {row}<|im_end|>"
        assert set(batch.token_BT[b][~batch.mask_BT[b]].tolist()) <= {tokenizer.pad_token_id}


def test_weights_decide_how_often_a_file_is_asked(tmp_path: Path) -> None:
    files = (write(tmp_path, "a.tsv", 2), 1.0), (write(tmp_path, "b.tsv", 8), 4.0)
    dataset = opened(*files, shuffle=False)
    assert dataset.rows == (2, 8)
    assert dataset.mixture.draws == (2, 8)
    dataset = opened((files[0][0], 1.0), (files[1][0], 1.0))
    batch = dataset.batch(0, 10)
    assert Counter(file for file, _ in batch.rows) == {0: 5, 1: 5}


def test_sizes_are_of_what_is_drawn(tmp_path: Path) -> None:
    short, long = write(tmp_path, "a.tsv", 4), write(tmp_path, "b.tsv", 4, answer="x" * 50)
    dataset = opened(short, long)
    lengths = [[len(dataset.rendered(f, r).token) for r in range(4)] for f in range(2)]
    assert dataset.max_length == max(map(max, lengths))
    assert dataset.tokens_per_epoch == sum(map(sum, lengths)) == dataset.batch(0, 8).tokens
    only = opened((short, 1.0), (long, 0.0))
    assert only.max_length == max(lengths[0])
    assert only.tokens_per_epoch == 2 * sum(lengths[0])


def test_long_rows_lose_their_beginning_and_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(f"short\tyes\n{'long ' * 40}\tyes\n")
    dataset = opened(path, max_tokens=60)
    assert dataset.truncated == 1
    assert dataset.max_length == 60
    assert byte_tokenizer().decode(dataset.rendered(0, 1).token).endswith("\nyes<|im_end|>\n")
    assert dataset.untaught == 0


def test_the_digest_is_of_all_that_decides_the_batches(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    a, b = write(tmp_path, "a.tsv", 5), write(tmp_path, "b.tsv", 5)
    digest = opened(a, b).digest
    assert len(digest) == 32
    assert digest == opened(write(tmp_path / "elsewhere", "a.tsv", 5), b).digest
    others = [
        opened(b, a), opened(a), opened(a, b, seed=2), opened(a, b, shuffle=False),
        opened((a, 1.0), (b, 2.0)), opened(a, b, max_tokens=20),
    ]  # fmt: skip
    a.write_text(a.read_text().replace("answer 3", "answer 4"))
    others.append(opened(a, b))
    assert len({digest, *(other.digest for other in others)}) == 8


def test_the_digest_is_of_the_targets_too(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "q", "response": "a"}')
    digest = opened(path).digest
    tokenizer = byte_tokenizer()  # the same text, with more of it in the generation prompt
    template = tokenizer.chat_template
    tokenizer.chat_template = template.replace(">assistant\n{% endif", ">assistant\na{% endif")
    assert opened(path, tokenizer=tokenizer).digest != digest
    assert (
        opened(path, tokenizer=tokenizer).rendered(0, 0).token == opened(path).rendered(0, 0).token
    )


def test_the_digest_is_of_where_one_row_ends_and_the_next_begins() -> None:
    def digest(*rows: tuple[int, ...]) -> str:
        packed = PackedRows()
        for row in rows:
            packed.add(Rendered(row, (True,) * len(row), "a:1"))
        return Dataset((packed,), Mixture((2,)), 0, 0).digest

    assert digest((1, 2), (3, 4, 5)) != digest((1, 2, 3), (4, 5))


def test_progress_is_told_row_by_row_over_all_files(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    files = write(tmp_path, "a.tsv", 2), write(tmp_path, "b.tsv", 1)
    opened(*files, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_all_that_is_wrong_with_all_files_is_told_at_once(tmp_path: Path) -> None:
    a = write(tmp_path, "a.tsv", 3)
    b, c = tmp_path / "b.tsv", tmp_path / "c.tsv"
    b.write_text("no tab\n")
    c.write_text("q\ta\n" + "q\tin<|im_end|>side\n" * 12)
    with pytest.raises(DataError) as caught:
        opened(a, b, tmp_path / "none.tsv", c)
    said = caught.value.problem
    assert f"{b}: 1 of its 1 lines" in said
    assert "none.tsv could not be read" in said
    assert "12 rows cannot be used:" in said
    assert f"{c}:2: the assistant's text holds '<|im_end|>'" in said
    assert "and 2 more" in said
    assert "mend these lines" in caught.value.fix
    assert caught.value.fix.count("take it out, or") == 1


def test_a_single_row_too_long_to_learn_from_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", 1)
    with pytest.raises(DataError, match="1 row cannot be used") as caught:
        opened(path, max_tokens=2)
    assert caught.value.fix == "raise data.max_tokens"


def test_arguments_reach_the_template(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{{ mood }}" + tokenizer.chat_template
    dataset = opened(
        write(tmp_path, "a.tsv", 1), tokenizer=tokenizer, template_arguments={"mood": "merry"}
    )
    assert tokenizer.decode(dataset.rendered(0, 0).token).startswith("merry<|im_start|>")


def test_a_tokenizer_without_padding_pads_with_something(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", 2)
    tokenizer = byte_tokenizer()
    tokenizer.pad_token = None
    assert opened(path, tokenizer=tokenizer).pad == tokenizer.eos_token_id
    tokenizer.eos_token = None
    assert opened(path, tokenizer=tokenizer).pad == 0


def test_settings_that_cannot_be_are_refused(tmp_path: Path) -> None:
    a, b = write(tmp_path, "a.tsv", 2), write(tmp_path, "b.tsv", 2)
    with pytest.raises(ConfigError, match="No data"):
        opened()
    with pytest.raises(ConfigError, match=r"b\.tsv has no weight"):
        opened((a, 1.0), b)
    with pytest.raises(ConfigError, match="max_tokens is 1"):
        opened(a, max_tokens=1)
    with pytest.raises(ConfigError, match="The weights are"):
        opened((a, -1.0), (b, 1.0))
    with pytest.raises(ConfigError, match="no batch -1"):
        opened(a).batch(-1, 2)
    with pytest.raises(ConfigError, match="of 0 rows"):
        opened(a).batch(0, 0)
