import threading

import pytest
import torch
from torch import Tensor

from fourge.nvfp4.kept import Products, keeping, product, reusing


def refuse() -> Tensor:
    raise AssertionError("made again")


def kept(*values: float) -> Products:
    products = Products()
    with keeping(products):
        for value in values:
            product(lambda value=value: torch.tensor([value]))  # type: ignore[misc]
    return products


def test_products_come_back_in_their_order_as_often_as_asked() -> None:
    again = reusing(kept(1.0, 2.0))
    for _ in range(2):
        with again:
            assert [product(refuse).item(), product(refuse).item()] == [1.0, 2.0]


def test_outside_of_both_a_product_is_simply_made() -> None:
    kept(1.0)
    assert product(lambda: torch.tensor([3.0])).item() == 3.0


def test_an_inner_block_does_not_see_the_outer_products() -> None:
    outer, inner = kept(1.0), kept(2.0)
    with reusing(outer):
        with reusing(inner):
            assert product(refuse).item() == 2.0
        assert product(refuse).item() == 1.0


def test_a_product_that_was_written_to_is_refused() -> None:
    products = Products()
    with keeping(products):
        made = product(lambda: torch.tensor([1.0]))
    made.add_(1)
    with reusing(products), pytest.raises(RuntimeError, match="written to"):
        product(refuse)


def test_nothing_of_the_graph_is_kept_with_a_product() -> None:
    products = Products()
    with keeping(products):
        product(lambda: torch.ones(1, requires_grad=True) * 2)
    with reusing(products):
        assert product(refuse).grad_fn is None


def test_another_thread_keeps_and_reuses_nothing() -> None:
    found: list[float] = []
    with reusing(kept(1.0)):
        other = threading.Thread(
            target=lambda: found.append(product(lambda: torch.tensor([5.0])).item())
        )
        other.start()
        other.join()
    assert found == [5.0]


def test_an_error_inside_ends_the_keeping() -> None:
    products = Products()
    with pytest.raises(ValueError, match="inside"), keeping(products):
        raise ValueError("inside")
    product(lambda: torch.tensor([1.0]))
    assert list(products.again()) == []
