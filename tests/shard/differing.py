"""``fourge``, but a rank after the first is told something else: for ranks that do not agree."""

import sys

from fourge.cli.main import main
from fourge.shard.launched import launched

if __name__ == "__main__":
    place = launched()
    assert place is not None, "started by torchrun"
    if place.rank == 0:
        sys.argv = [word for word in sys.argv if not word.startswith("other:")]
    else:
        sys.argv = [word.removeprefix("other:") for word in sys.argv]
    main()
