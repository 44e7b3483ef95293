"""Measuring activation scales for w4a4: each layer notes its largest input on some text."""

from pathlib import Path
from typing import Any

import torch

from fourge.core.errors import ConfigError
from fourge.model.source import Source
from fourge.nvfp4.linear import calibrating

# A few kinds of text, several languages, code and numbers: enough to find a largest magnitude
# (whose scale has headroom up to a factor of two), not enough to tune on.
TEXTS = (
    "The harbour was quiet before dawn; only the bell on the outer buoy marked the swell.",
    "To prove it, assume the opposite: let n be the smallest number that is not a product of "
    "primes. Then n = a * b with a, b < n, and both are products of primes.",
    "def mean(values):\n    total = 0.0\n    for value in values:\n        total += value\n"
    "    return total / len(values)\n",
    "昨晚的會議決定延後發表。測試還沒有完成。請在星期五以前回覆。",
    "La recette demande 250 g de farine, 3 oeufs, 1/2 litre de lait et une pincee de sel.",
    "Q: What is the boiling point of water at sea level? A: 100 degrees Celsius, 212 Fahrenheit.",
    '{"id": 4711, "items": [{"sku": "A-1", "price": 19.99}, {"sku": "B-7", "price": 3.5}]}',
    "Die Zugverbindung faellt heute wegen Bauarbeiten aus; Ersatzbusse fahren alle 20 Minuten.",
)


def calibrate_(model: Any, source: Source, texts: Path | None = None) -> None:
    """Fix the input scales of every NVFP4 layer, from a file of lines or from built-in text.

    Raises:
        ConfigError: the file has no text.
    """
    lines = list(TEXTS)
    if texts is not None:
        try:
            content = texts.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{texts} is not UTF-8 text.", why=str(error)) from error
        lines = [line for line in content.splitlines() if line.strip()]
        if not lines:
            raise ConfigError(f"{texts} has no text to calibrate on.")
    tokenizer = source.tokenizer()
    with calibrating(model), torch.no_grad():
        for line in lines:
            tokens = tokenizer(line, return_tensors="pt", truncation=True, max_length=2048)
            model(tokens["input_ids"].to(model.device))
