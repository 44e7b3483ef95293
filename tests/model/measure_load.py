"""Run by test_build in its own process: prints the growth of memory at its peak, and the model."""

import sys
import threading
import time

import psutil
import torch

from fourge.model.build import load_model
from fourge.model.source import open_source


def main(small: str, large: str) -> None:
    load_model(open_source(small), dtype=torch.float32)  # what is allocated once
    process = psutil.Process()
    samples = [process.memory_info().rss]
    stop = threading.Event()

    def sample() -> None:
        while not stop.is_set():
            samples.append(process.memory_info().rss)
            time.sleep(0.0005)

    thread = threading.Thread(target=sample)
    thread.start()
    model = load_model(open_source(large), dtype=torch.float32)
    stop.set()
    thread.join()
    nbytes = sum(p.nbytes for p in model.parameters())
    sys.stdout.write(f"{max(samples) - samples[0]} {nbytes}\n")


main(sys.argv[1], sys.argv[2])
