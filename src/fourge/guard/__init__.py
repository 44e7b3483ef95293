"""A separate process that stops a job before it takes the machine with it.

Standard library only, and nothing of ours: it must answer when the trainer does not. ``policy``
decides, ``counters`` looks, ``job`` acts, ``record`` writes it down, ``watch`` is the loop around
them, ``client`` is the trainer's end.
"""
