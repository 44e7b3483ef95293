import torch

from fourge.memory.live import LARGE, Held, LiveBytes, pieces

META = torch.device("meta")


def test_what_is_made_is_counted_until_it_is_freed() -> None:
    with LiveBytes() as live:
        one = torch.empty(100, device=META)
        two = one + one
        assert live.now.total == 800
        del one
        assert live.now.total == 400
        del two
    assert live.now.total == 0


def test_a_view_is_no_new_memory() -> None:
    with LiveBytes() as live:
        whole = torch.empty(8, 8, device=META)
        part = whole[2:].T
        assert live.now.total == 256
        del whole
        assert live.now.total == 256
        del part
        assert live.now.total == 0


def test_what_was_there_before_is_not_counted_when_it_is_passed_on() -> None:
    weight = torch.empty(16, device=META)
    with LiveBytes([weight]) as live:
        passed = weight.detach()
        assert live.now.total == 0
        made = passed * 2
        assert live.now.total == made.nbytes


def test_a_lap_has_the_most_since_the_one_before() -> None:
    with LiveBytes() as live:
        kept = torch.empty(10, device=META)
        torch.empty(90, device=META)
        assert live.lap() == Held(small=400)
        kept = kept + 1
        assert live.lap() == Held(small=80)
        live.briefly(1000)
        assert live.now.total == 40
        assert live.lap() == Held(small=1040)


def test_small_and_large_pieces_are_told_apart() -> None:
    assert pieces(LARGE - 1, LARGE, 5) == Held(LARGE + 4, LARGE)
    with LiveBytes() as live:
        held = [torch.empty(n, dtype=torch.uint8, device=META) for n in (LARGE, 7)]
        assert live.now == Held(7, LARGE)
        del held
    assert Held(1, 9).highest(Held(5, 2)) == Held(5, 9)


def test_a_backward_pass_is_counted_like_a_real_one() -> None:
    def peak(device: str) -> Held:
        weight = torch.ones(64, 64, device=device, requires_grad=True)
        x = torch.ones(32, 64, device=device)
        with LiveBytes([weight, x]) as live:
            (x @ weight).relu().sum().backward()
        most: Held = live.lap()
        return most

    assert peak("meta") == peak("cpu") != Held()


def test_a_number_that_is_asked_for_is_one_and_all_values_differ() -> None:
    with LiveBytes():
        value = torch.empty((), device=META)
        assert value.item() == 1
        assert bool(torch.isfinite(value).all())
        index, place = torch.empty(3, 4, device=META).unique(return_inverse=True)
    assert len(index) == place.numel() == 12
