"""A layer of a key-value cache with room to grow.

transformers' own layer makes a new tensor for each token and copies all earlier ones into it. Here
``keys`` and ``values`` are the filled beginning of larger tensors: a token is written behind them,
and everything is copied once in ``ROOM`` tokens. A long piece, of which there are few, gets no room
behind it, so that a text that is only read takes no more memory than it has keys and values.

Cutting back shortens the view. A tensor that was put in the place of the view (a session loaded
from a file) is copied into a room of its own when the next token comes.

Shapes: B rows, H key-value heads, T tokens, D values of a head.
"""

from typing import Any

from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

ROOM = 64  # tokens


class RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """``keys`` and ``values`` are views [B, H, T, D] into tensors with a larger T."""

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = key_states[..., :0, :], value_states[..., :0, :]
        self._key_room, self._value_room = self.keys, self.values
        self.is_initialized = True

    def hold(self, keys: Tensor, values: Tensor, tokens: int) -> None:
        """Begin with the first tokens of these, and append to them behind those."""
        self.lazy_initialization(keys, values)
        self._key_room, self._value_room = keys, values
        self.keys, self.values = keys[..., :tokens, :], values[..., :tokens, :]

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append, and return all of it."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys, self._key_room = _append(self.keys, self._key_room, key_states)
        self.values, self._value_room = _append(self.values, self._value_room, value_states)
        return self.keys, self.values


def roomy_cache(config: Any) -> DynamicCache:
    """The cache of transformers for a model, with room in each layer that keeps everything."""
    cache = DynamicCache(config=config)
    cache.layers = [
        RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache


def _append(held: Tensor, room: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """What is held with the new behind it, and the tensor that both lie in."""
    length = held.shape[-2]
    total = length + new.shape[-2]
    is_own = held.data_ptr() == room.data_ptr() and len(held) == len(room)
    if not is_own or room.shape[-2] < total:
        more = ROOM if new.shape[-2] < ROOM else 0
        room = new.new_empty(*new.shape[:-2], total + more, new.shape[-1])
        room[..., :length, :] = held
    room[..., length:total, :] = new
    return room[..., :total, :], room
