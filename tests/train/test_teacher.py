import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fourge.core.errors import ConfigError
from fourge.core.prefix import common_prefix
from fourge.data.batch import MASKED, Batch
from fourge.data.dataset import Dataset, open_dataset
from fourge.train import teacher as teacher_module
from fourge.train.loss import Weights
from fourge.train.step import batch_loss, target_states
from fourge.train.teacher import TeacherCache, ask_base, cache_name, cache_nbytes
from tests.conftest import byte_tokenizer, tiny_model

ROWS = ["who?\tme\nwhere are you?\there, as ever\n", "sky?\tblue\nsea?\tdeep\nsun?\tfar away\n"]


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return dataset_of(tmp_path, ROWS)


def dataset_of(folder: Path, rows: list[str], **settings: Any) -> Dataset:
    files: list[tuple[Path, float | None]] = []
    for number, text in enumerate(rows):
        path = folder / f"{number}.tsv"
        path.write_text(text)
        files.append((path, None))
    chosen = {"max_tokens": 64, "seed": 0, "shuffle": False, **settings}
    return open_dataset(files, byte_tokenizer(), **chosen)


def rows_of(dataset: Dataset, *files: int) -> list[tuple[int, int]]:
    return [(file, row) for file in files for row in range(dataset.rows[file])]


def batch_with(dataset: Dataset, rows: list[tuple[int, int]]) -> Any:
    from fourge.data.batch import collate

    return collate([dataset.rendered(*row) for row in rows], dataset.pad, rows)


@pytest.mark.parametrize(("family", "tied"), [("qwen3", True), ("llama", False)])
@pytest.mark.parametrize("top_k", [1, 8, 300])
def test_the_cache_is_the_model_s_own_top_of_its_distribution(
    dataset: Dataset, family: str, tied: bool, top_k: int
) -> None:
    model = tiny_model(family, tied=tied)
    cache = ask_base(model, dataset, rows_of(dataset, 0, 1), top_k)
    batch = batch_with(dataset, [(1, 2), (0, 1), (1, 0)])
    teacher = cache.of(batch)
    with torch.no_grad():
        logits = model(batch.token_BT, attention_mask=batch.mask_BT.long()).logits
    log_p = logits.float().log_softmax(-1)[batch.target_BT != MASKED]
    top, _ = log_p.topk(top_k)
    assert teacher.has_T.all()
    assert teacher.token_TK.shape == (batch.targets, top_k)
    torch.testing.assert_close(teacher.log_p_TK, top, rtol=2**-10, atol=1e-4)
    torch.testing.assert_close(
        log_p.gather(1, teacher.token_TK), teacher.log_p_TK, rtol=2**-10, atol=1e-4
    )
    assert all(len(set(row.tolist())) == top_k for row in teacher.token_TK)


def test_a_model_is_no_distance_from_itself(dataset: Dataset) -> None:
    model = tiny_model("qwen3", tied=True)
    cache = ask_base(model, dataset, rows_of(dataset, 1), 32)
    batch = batch_with(dataset, [(1, 0), (1, 1)])
    loss = batch_loss(model, batch, Weights(1.0, 1 / batch.targets), teacher=cache.of(batch))
    assert loss.total.item() == pytest.approx(0.0, abs=1e-5)
    assert loss.target_sum.item() == 0


def test_rows_that_are_not_held_have_no_teacher(dataset: Dataset) -> None:
    cache = ask_base(tiny_model("qwen3", tied=True), dataset, rows_of(dataset, 1), 8)
    batch = batch_with(dataset, [(0, 0), (1, 1), (0, 1)])
    teacher = cache.of(batch)
    counts = (batch.target_BT != MASKED).sum(1).tolist()
    assert teacher.has_T.tolist() == [False] * counts[0] + [True] * counts[1] + [False] * counts[2]
    assert len(teacher.token_TK) == len(teacher.log_p_TK) == batch.targets
    assert teacher.token_TK.dtype == torch.int64
    assert not teacher.token_TK[~teacher.has_T].any()
    nobody = cache.of(batch_with(dataset, [(0, 0), (0, 1)]))
    assert not nobody.has_T.any()


def test_a_row_that_is_asked_alone_is_held_in_its_last_answer_to_what_the_base_says_to_that(
    tmp_path: Path,
) -> None:
    said = [("user", "who?"), ("assistant", "me"), ("user", "sky?"), ("assistant", "blue")]
    row = {"messages": [{"role": role, "content": text} for role, text in said]}
    (tmp_path / "later.jsonl").write_text(json.dumps(row))
    (tmp_path / "plain.tsv").write_text("sky?\tblue\n")
    dataset = open_dataset(
        [(tmp_path / "later.jsonl", None), (tmp_path / "plain.tsv", None)], byte_tokenizer(),
        max_tokens=200, seed=0, shuffle=False, alone=[0],
    )  # fmt: skip
    cache = ask_base(tiny_model("qwen3", tied=True), dataset, [(0, 0), (1, 0)], 8)
    teacher = cache.of(batch_with(dataset, [(0, 0)]))
    alone = cache.of(batch_with(dataset, [(1, 0)]))
    first, last = len("me") + 1, len("blue") + 1  # and the stop token
    assert teacher.has_T.tolist() == [False] * first + [True] * last
    assert torch.equal(teacher.token_TK[first:], alone.token_TK)
    torch.testing.assert_close(teacher.log_p_TK[first:], alone.log_p_TK)
    assert not teacher.token_TK[:first].any()


def test_a_row_that_should_have_been_asked_about_is_not_passed_over(dataset: Dataset) -> None:
    cache = ask_base(tiny_model("qwen3", tied=True), dataset, [(1, 0), (1, 2)], 8)
    with pytest.raises(KeyError, match="1, 1"):
        cache.of(batch_with(dataset, [(1, 0), (1, 1)]))


def test_what_is_saved_reads_back(dataset: Dataset, tmp_path: Path) -> None:
    cache = ask_base(tiny_model("qwen3", tied=True), dataset, rows_of(dataset, 0, 1), 8)
    cache.save(tmp_path / "new" / "cache.safetensors")
    loaded = TeacherCache.load(tmp_path / "new" / "cache.safetensors", 8)
    batch = batch_with(dataset, [(1, 2), (0, 1)])
    one, other = cache.of(batch), loaded.of(batch)
    assert torch.equal(one.token_TK, other.token_TK)
    assert torch.equal(one.log_p_TK, other.log_p_TK)
    assert torch.equal(one.has_T, other.has_T)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["cache.safetensors"]


def test_the_file_is_named_for_all_that_it_depends_on(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path, ROWS)
    other = dataset_of(tmp_path, [ROWS[0], ROWS[1].replace("blue", "grey")])
    name = cache_name("digest", dataset, rows_of(dataset, 0, 1), 8)
    others = [
        cache_name("another", dataset, rows_of(dataset, 0, 1), 8),
        cache_name("digest", other, rows_of(dataset, 0, 1), 8),
        cache_name("digest", dataset, rows_of(dataset, 1), 8),
        cache_name("digest", dataset, rows_of(dataset, 0, 1), 9),
    ]
    assert len({name, *others}) == 5
    assert name == cache_name("digest", dataset_of(tmp_path, ROWS), rows_of(dataset, 1, 0), 8)
    assert name.startswith("teacher-")
    assert name.endswith(".safetensors")


@pytest.mark.parametrize("top_k", [0, 301])
def test_more_tokens_than_there_are_is_refused(dataset: Dataset, top_k: int) -> None:
    with pytest.raises(ConfigError, match=f"kl_top_k is {top_k}; the vocabulary has 300"):
        ask_base(tiny_model("qwen3", tied=True), dataset, rows_of(dataset, 0), top_k)


def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[int, int], ...]]:
    """The rows that are read at once, as they are."""
    read: list[tuple[tuple[int, int], ...]] = []

    def noted(model: Any, batch: Batch) -> torch.Tensor:
        read.append(batch.rows)
        return target_states(model, batch)

    monkeypatch.setattr(teacher_module, "target_states", noted)
    return read


LIKE = ["the sky at noon?\tblue\nwho wrote Emma, when?\tshe\n",
        "the sky at noon? and night?\tblue\n"]  # fmt: skip


@pytest.mark.parametrize(
    ("attention", "expected"),
    [
        ("sdpa", [{(0, 0), (1, 0)}, {(0, 1)}]),  # by how they begin
        ("eager", [{(0, 0), (0, 1)}, {(1, 0)}]),  # by how long they are
    ],
)
def test_rows_that_begin_alike_are_read_together_where_that_is_then_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attention: str, expected: Any
) -> None:
    dataset = dataset_of(tmp_path, LIKE)
    model = tiny_model("qwen3", tied=True)
    model.config._attn_implementation = attention
    whole = ask_base(model, dataset, rows_of(dataset, 0, 1), 4)
    short, other, long = (dataset.rendered(*row).token for row in [(0, 0), (0, 1), (1, 0)])
    together = len(short) + len(long) - common_prefix(short, long)
    most = together if attention == "sdpa" else 2 * len(other)
    monkeypatch.setattr(teacher_module, "TOKENS", most)
    read = rows_read(monkeypatch)
    seen: list[tuple[int, int]] = []
    apart = ask_base(model, dataset, rows_of(dataset, 0, 1), 4,
                     progress=lambda done, total: seen.append((done, total)))  # fmt: skip
    assert sorted(map(sorted, read)) == sorted(map(sorted, expected))
    assert seen[-1] == (3, 3)
    batch = batch_with(dataset, [(1, 0), (0, 1), (0, 0)])
    one, two = whole.of(batch), apart.of(batch)
    assert torch.equal(one.token_TK, two.token_TK)
    torch.testing.assert_close(one.log_p_TK, two.log_p_TK, rtol=0, atol=1e-5)


def test_a_row_that_is_there_twice_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = dataset_of(tmp_path, ["sky?\tblue\n", "sea?\tdeep\nsky?\tblue\nsky?\tblue grey\n"])
    read, seen = rows_read(monkeypatch), list[tuple[int, int]]()
    cache = ask_base(tiny_model("qwen3", tied=True), dataset, rows_of(dataset, 0, 1), 4,
                     progress=lambda done, total: seen.append((done, total)))  # fmt: skip
    assert sorted(row for rows in read for row in rows) == [(0, 0), (1, 0), (1, 2)]
    assert seen == [(4, 4)]
    one, same = (cache.of(batch_with(dataset, [row])) for row in [(0, 0), (1, 1)])
    assert torch.equal(one.log_p_TK, same.log_p_TK)
    assert torch.equal(one.token_TK, same.token_TK)


def test_the_cache_has_the_size_that_a_plan_is_told(dataset: Dataset, tmp_path: Path) -> None:
    cache = ask_base(tiny_model("qwen3", tied=True), dataset, rows_of(dataset, 0, 1), 8)
    parts = [*cache._token.values(), *cache._log_p.values()]
    positions = sum(len(part) for part in cache._token.values())
    assert sum(part.nbytes for part in parts) == cache_nbytes(positions, 8)
