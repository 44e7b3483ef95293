from fourge.memory.heap import backward_holes, forward_holes
from fourge.memory.inventory import take_inventory
from fourge.memory.trace import trace
from tests.memory.samples import wanted


def test_holes_grow_with_layers_and_tokens() -> None:
    def holes(layers: int, tokens: int) -> int:
        asked = wanted(layers=layers, tokens=tokens)
        return forward_holes(asked, trace(asked))

    assert 0 < holes(2, 64) < holes(4, 64) < holes(4, 256)
    assert holes(4, 64) == 2 * holes(2, 64)


def test_half_are_left_backward_unless_gradients_stay() -> None:
    asked, staying = wanted(layers=3), wanted(layers=3, release=False)
    forward = forward_holes(asked, trace(asked))
    assert backward_holes(asked, trace(asked), take_inventory(asked)) == forward // 2
    products = 3 * 4 * 128 * 64  # float32, of the widest matrix of each layer
    inventory = take_inventory(staying)
    assert backward_holes(staying, trace(staying), inventory) == forward + products
