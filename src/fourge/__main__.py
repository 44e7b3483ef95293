"""``python -m fourge``."""

from fourge.cli.main import main

main()
